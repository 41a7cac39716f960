from setuptools import Distribution, setup


class Built(Distribution):
    """The build has compiled the library: the wheel is of one platform."""

    def has_ext_modules(self):
        return True


setup(distclass=Built)
