"""Simulates pipeline-parallel training: the program `pipewright` as a module.

Reports are the objects that the command prints with --json, arrays are NumPy's.
docs/python.md explains the functions, docs/config.md the fields and flags.
"""

import json as _json
import os as _os
import warnings as _warnings


class Error(ValueError):
    """What Pipewright refuses, with the parts of the error that are known.

    `exit_code` is what the command would end with: 2 bad input, 3 a limit that
    is not met, 4 a schedule that is not legal, 1 a failure of Pipewright.
    """

    def __init__(self, message, *, file=None, line=None, field=None, value=None,
                 allowed=None, exit_code=2):
        super().__init__(message)
        self.file = file
        self.line = line
        self.field = field
        self.value = value
        self.allowed = allowed
        self.exit_code = exit_code


from . import _core  # noqa: E402  It raises Error.

__version__ = _core.version
__all__ = ["Error", "check", "flags", "load_profile", "plan", "schedule",
           "simulate", "sweep", "timeline"]


def _text(value):
    """A value as the command line has it: lists with commas between."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (list, tuple)):
        return ",".join(_text(item) for item in value)
    if isinstance(value, _os.PathLike):
        return _os.fspath(value)
    if hasattr(value, "tolist"):  # NumPy's
        return _text(value.tolist())
    return value if isinstance(value, str) else repr(value)


def _plain(value):
    if hasattr(value, "tolist"):
        return value.tolist()
    if isinstance(value, _os.PathLike):
        return _os.fspath(value)
    raise TypeError(f"a {type(value).__name__} is no value of a configuration")


def _pairs(mapping):
    """Keys and values, one pair for each key of a value that is a dict."""
    for key, value in mapping.items():
        if isinstance(value, dict):
            for name, item in value.items():
                yield key, f"{name}={_text(item)}"
        else:
            yield key, _text(value)


def _given(config, fields, flags):
    """What _core takes for a run: file, dict as JSON, fields, flags."""
    flags = {key: value for key, value in flags.items() if value is not None}
    text = None
    if isinstance(config, dict):
        try:
            text = _json.dumps(config, default=_plain, allow_nan=False)
        except (TypeError, ValueError) as error:
            raise Error(f"config: {error}", field="config") from None
        config = ""
    elif config is not None and not isinstance(config, (str, _os.PathLike)):
        raise TypeError("config: a dict, the name of a model or a path")
    sets = [(key, _text(value)) for key, value in (fields or {}).items()]
    return _text(config), text, sets, list(_pairs(flags))


def _warn(texts):
    for text in texts:
        _warnings.warn(text, UserWarning, stacklevel=3)


def flags():
    """Names of the keywords that stand for flags of the command."""
    return _core.keywords()


def simulate(config=None, *, set=None, **flags):
    """Runs a configuration; the report of `pipewright simulate --json`.

    A run that does not fit is a result, with `fits` False.
    """
    return _json.loads(_core.simulate(_given(config, set, flags)))


def timeline(config=None, *, whole=False, set=None, **flags):
    """Operations of a run as a structured array, by rank and start.

    Times are seconds, or units of a pass where simulate's `time_unit` says so.
    The rows are of the first iteration and of one data-parallel replica of each
    class; with `whole` of all.
    """
    array, warnings = _core.timeline(_given(config, set, flags), whole)
    _warn(warnings)
    return array


def schedule(name=None, config=None, *, set=None, **flags):
    """Builds a schedule; the object of `pipewright schedule --json`.

    Its key `passes` is a structured array with a row a pass, in the order of
    each rank.
    """
    text, passes, warnings = _core.schedule(_text(name),
                                            _given(config, set, flags))
    _warn(warnings)
    return {**_json.loads(text), "passes": passes}


def check(file, config=None, *, semantics="buffered", queues=None,
          resident_kernels=None, set=None, **flags):
    """Proves that a schedule file is complete and ends; `check --json`.

    What is wrong with the schedule is a result: `valid` is False and `error`
    says why.
    """
    text, warnings = _core.check(_text(file), semantics, queues,
                                 resident_kernels, _given(config, set, flags))
    _warn(warnings)
    return _json.loads(text)


def plan(config=None, *, fix=None, objective="tokens_per_s", workers=None,
         confirm=None, top=10, time=None, max_candidates=0, refine=0, set=None,
         **flags):
    """Finds the fastest configuration that fits; `pipewright plan --json`.

    `fix` maps an axis to the value or values that it may have. `confirm` is the
    most runs on the engine fluid (0: none). `time` is in seconds or a text
    ("10s"). `refine` searches for orders of so many of the best. Where nothing
    fits, `fits` is False.
    """
    fixed = [f"{axis}={_text(values)}" for axis, values in (fix or {}).items()]
    if time is not None and not isinstance(time, str):
        time = f"{time!r}s"
    return _json.loads(_core.plan(_given(config, set, flags), fixed, objective,
                                  workers, confirm, top, time or "",
                                  max_candidates, refine))


def _axis(name, values):
    """'tp=1,2', 'tp,pp=1:8,8:1'; a list among the values is in brackets."""
    if isinstance(values, str):
        return f"{_text(name)}={values}"
    if isinstance(name, tuple):
        words = [":".join(_text(item) for item in value) for value in values]
    else:
        words = [f"[{_text(value)}]" if isinstance(value, (list, tuple)) else
                 _text(value) for value in values]
    return f"{_text(name)}={','.join(words)}"


def sweep(config=None, axes=None, *, filters=(), seeds=0, workers=None,
          set=None, **flags):
    """Iterates over the points of a grid in its order, one dict a point.

    `axes` maps a field or flag to its values: a list, or a text as of --sweep
    ("1..8"). A tuple of fields takes tuples. A point that is refused or does not
    fit has its status and reason. Points are computed ahead, in threads.
    """
    words = [_axis(name, values) for name, values in (axes or {}).items()]
    filters = [filters] if isinstance(filters, str) else list(filters)
    points = _core.Sweep(_given(config, set, flags), words, filters, seeds,
                         workers)
    _warn(points.warnings)
    return map(_json.loads, points)


def load_profile(name):
    """A calibration profile, shipped or a file, as a dict of lists of dicts.

    Times are seconds; what is not known is None.
    """
    return _json.loads(_core.load_profile(_text(name)))
