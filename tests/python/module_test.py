"""The Python module against the command and the files that it stands for."""

import ast
import doctest
import inspect
import json
import keyword
import os
import pathlib
import pickle
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import unittest
import venv
import warnings

import pipewright

BINARY = os.environ["PIPEWRIGHT_BINARY"]
ROOT = pathlib.Path(__file__).resolve().parents[2]
PACKAGE = pathlib.Path(pipewright.__file__).parent
HAS_SIMGRID = (PACKAGE / "libpipewright_simgrid.so").exists()

UNIFORM = {"schedule": "zb-h1", "pp": 4, "microbatches": 8,
           "forward": "18.522ms", "backward_input": "18.086ms",
           "backward_weight": "9.337ms", "p2p": "0.601ms"}
MODEL = {"system": "dgx-h100", "pp": 4, "tp": 2, "microbatches": 16}
# Takes minutes if nobody ends it.
ENDLESS = {"schedule": "1f1b", "pp": 16, "microbatches": 10_000,
           "iterations": 10_000, "jitter": "1%", "forward": "1ms",
           "backward": "2ms", "p2p": "1us"}


def command(*words, codes=(0,), cwd=None):
    done = subprocess.run([BINARY, *map(str, words)], capture_output=True,
                          text=True, check=False, cwd=cwd)
    if done.returncode not in codes:
        raise AssertionError(f"{words}: {done.returncode}: {done.stderr}")
    return done.stdout


def words_of(flags):
    return [word for key, value in flags.items()
            for word in ("--" + key.replace("_", "-"), value)]


class Folder(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.enterContext(warnings.catch_warnings())
        warnings.simplefilter("ignore")

    def write(self, name, text):
        (self.folder / name).write_text(text)
        return self.folder / name


class Numbers(Folder):
    def same(self, made, printed):
        # Key by key, in order; repr of a float is exact.
        self.assertEqual(json.dumps(made), json.dumps(json.loads(printed)))

    def test_simulate_is_the_command_bit_for_bit(self):
        runs = [({}, UNIFORM), ({}, {**UNIFORM, "engine": "fluid"}),
                ({}, {**UNIFORM, "jitter": "3%", "seed": 7}),
                ({}, {"schedule": "zb-auto", "pp": 4, "microbatches": 6}),
                ({"config": "llama3-8b"}, MODEL),
                ({"config": "llama3-8b"}, {**MODEL, "memory": "20GiB"}),
                ({"config": "gpt2"}, {**MODEL, "tp": 1, "dp": 2})]
        if HAS_SIMGRID:
            runs += [({}, {**UNIFORM, "engine": "simgrid"}),
                     ({"config": "llama3-8b"}, {**MODEL, "engine": "simgrid"})]
        for given, flags in runs:
            with self.subTest(**given, **flags):
                printed = command("simulate", *given.values(),
                                  *words_of(flags), "--json", codes=(0, 3))
                self.same(pipewright.simulate(**given, **flags), printed)

    def test_a_dict_is_the_file_that_says_the_same(self):
        config = {"schedule": {"name": "zeropp", "params": {"unit": 4}},
                  "strategy": {"pp": 3, "microbatches": 6},
                  "costs": {"uniform": {"forward_ms": 1.5, "backward_ms": 2.5}}}
        file = self.write("run.json", json.dumps(config))
        printed = command("simulate", file, "--json")
        self.same(pipewright.simulate(file), printed)
        # Warnings about a field name the file's line; a dict has none.
        printed = printed.replace(f"{file}:1: ", "")
        self.same(pipewright.simulate(config), printed)
        words = ["simulate", file, "--json"]
        self.same(pipewright.simulate(config, pp=2),
                  command(*words, "--pp", 2).replace(f"{file}:1: ", ""))
        self.same(pipewright.simulate(config, set={"strategy.pp": 2}),
                  command(*words, "--set", "strategy.pp=2").replace(
                      f"{file}:1: ", ""))

    def test_values_of_other_types_are_those_of_texts(self):
        import numpy

        one = pipewright.simulate(
            schedule="interleaved-1f1b", pp=numpy.int64(2), vpp=2,
            microbatches=4, forward=["1ms", "2ms", "3ms", "4ms"], backward="3ms",
            overlap_gradients=None)
        other = command("simulate", "--schedule", "interleaved-1f1b", "--pp", 2,
                        "--vpp", 2, "--microbatches", 4, "--forward", "1ms,2ms,3ms,4ms",
                        "--backward", "3ms", "--json")
        self.same(one, other)
        self.same(
            pipewright.simulate("llama3-8b", analytic=True, nodes=1, pp=2,
                                system="dgx-h100", sequence_parallel=False),
            command("simulate", "llama3-8b", "--analytic", "--nodes", 1, "--pp",
                    2, "--system", "dgx-h100", "--sequence-parallel", "false",
                    "--json", codes=(3,)))

    def test_plan_is_the_command(self):
        flags = {"system": "dgx-h100", "nodes": 1, "global_batch": 64}
        made = pipewright.plan("llama3-8b", fix={"tp": [1, 2], "pp": 2},
                               confirm=0, top=3, **flags)
        printed = json.loads(command(
            "plan", "llama3-8b", *words_of(flags), "--fix", "tp=1,2", "--fix",
            "pp=2", "--no-confirm", "--top", 3, "--json"))
        self.assertEqual(made, printed)
        self.assertTrue(made["fits"])
        refined = pipewright.plan("llama3-8b", fix={"tp": 2, "pp": 2}, confirm=0,
                                  top=1, refine=1, **flags)
        self.assertEqual(refined, json.loads(command(
            "plan", "llama3-8b", *words_of(flags), "--fix", "tp=2", "--fix",
            "pp=2", "--no-confirm", "--top", 1, "--refine", 1, "--json")))
        self.assertEqual(len(refined["refined"]), 1)
        few = pipewright.plan("llama3-8b", confirm=0, memory="2GiB", **flags)
        self.assertFalse(few["fits"])
        cut = pipewright.plan("llama3-8b", confirm=0, max_candidates=1, **flags)
        self.assertEqual(cut["cut"]["by"], "candidates")

    def test_sweep_gives_the_rows_of_the_command(self):
        base = {"microbatches": 8, "forward": "1ms", "backward": "2ms"}
        axes = {"pp": [2, 4, 3], "schedule": ["1f1b", "zb-h1", "interleaved-1f1b"],
                ("vpp", "slices"): [(1, 1), (2, 1)]}
        made = list(pipewright.sweep(None, axes, filters="strategy.pp > 2",
                                     workers=3, **base))
        command("sweep", *words_of(base), "--sweep", "pp=2,4,3", "--sweep",
                "schedule=1f1b,zb-h1,interleaved-1f1b", "--sweep",
                "vpp,slices=1:1,2:1", "--filter", "strategy.pp > 2", "-o",
                "runs.sqlite", "--jsonl", "rows.jsonl", codes=(0, 1, 2),
                cwd=self.folder)
        lines = (self.folder / "rows.jsonl").read_text().splitlines()
        rows = {tuple(row["axes"].values()): row
                for row in map(json.loads, lines)}
        self.assertEqual(len(made), 12)
        self.assertEqual({point["status"] for point in made}, {"ok", "refused"})
        self.assertEqual([point["axes"]["strategy.pp"] for point in made],
                         [4] * 6 + [3] * 6)
        for point in made:
            row = rows[tuple(point["axes"].values())]
            self.assertEqual(point, {key: row[key] for key in point})

    def test_sweep_reads_a_file_and_seeds(self):
        grid = {"base": {"schedule": {"name": "1f1b"},
                         "strategy": {"microbatches": 4},
                         "costs": {"jitter": "2%"}},
                "axes": {"strategy.pp": [2, 3]}, "seeds": 2}
        file = self.write("grid.json", json.dumps(grid))
        made = list(pipewright.sweep(grid))
        self.assertEqual(made, list(pipewright.sweep(file, workers=1)))
        self.assertEqual([point["axes"]["costs.seed"] for point in made],
                         [0, 1, 0, 1])
        times = {point["report"]["iteration_s"] for point in made}
        self.assertEqual(len(times), 4)

    @unittest.skipUnless(HAS_SIMGRID, "built without SimGrid")
    def test_sweep_runs_simgrid(self):
        made = list(pipewright.sweep(None, {"pp": [2, 3]}, engine="simgrid",
                                     schedule="1f1b", microbatches=4))
        self.assertEqual([point["report"]["engine"] for point in made],
                         ["simgrid"] * 2)


class Arrays(Folder):
    def test_passes_are_the_orders(self):
        for name, flags in [("1f1b", {}), ("zb-h1", {}), ("dualpipe", {}),
                            ("interleaved-1f1b", {"vpp": 2}), ("zb-v", {})]:
            made = pipewright.schedule(name, pp=4, microbatches=8, **flags)
            printed = json.loads(command("schedule", name, "--pp", 4,
                                         "--microbatches", 8, *words_of(flags),
                                         "--json"))
            orders = [[] for _ in range(4)]
            for row in made["passes"]:
                self.assertEqual(row["position"], len(orders[row["rank"]]))
                letter = "ab"[row["direction"]] if made["replicas"] > 1 else ""
                chunk = f".{row['chunk']}" if made["vpp"] > 1 else ""
                orders[row["rank"]].append(
                    ("(" if row["joint"] else "") +
                    f"{letter}{row['kind']}{row['microbatch']}{chunk}" +
                    ("&" if row["joint"] else " "))
            texts = ["".join(order).strip() for order in orders]
            texts = [re.sub(r"(\([^ ]*)", r"\1)", text) for text in texts]
            self.assertEqual(texts, printed["orders"])
            del made["passes"]
            self.assertEqual(made, printed)

    def test_stages_are_where_the_placement_has_them(self):
        passes = pipewright.schedule("interleaved-1f1b", pp=2, vpp=2,
                                     microbatches=4)["passes"]
        self.assertTrue((passes["stage"] ==
                         passes["rank"] + 2 * passes["chunk"]).all())

    def test_timeline_is_what_the_report_counts(self):
        report = pipewright.simulate(**UNIFORM)
        rows = pipewright.timeline(**UNIFORM)
        passes = rows[rows["stage"] >= 0]
        passes = passes[[kind in ("F", "B", "W") for kind in passes["kind"]]]
        self.assertEqual(len(passes), report["ops"])
        self.assertEqual(passes["end_s"].max() - passes["start_s"].min(),
                         report["span_s"]["global"])
        for rank in report["ranks"]:
            own = passes[passes["rank"] == rank["rank"]]
            self.assertEqual(own["start_s"][0], rank["first_start_s"])
            self.assertEqual(own["end_s"].max(), rank["last_end_s"])
            self.assertEqual(sorted(own["start_s"]), list(own["start_s"]))
        self.assertIn("send", rows["kind"])
        self.assertEqual(set(rows["iteration"]), {0})
        whole = pipewright.timeline(whole=True, iterations=2, **UNIFORM)
        self.assertEqual(set(whole["iteration"]), {0, 1})
        self.assertEqual(len(whole), 2 * len(rows))

    def test_too_much_is_refused_before_it_runs(self):
        with self.assertRaisesRegex(pipewright.Error, "operations") as caught:
            pipewright.timeline(whole=True, **ENDLESS)
        self.assertEqual(caught.exception.field, "timeline")


class Files(Folder):
    def test_check_reports_what_the_command_does(self):
        good = self.write("good.pws", command("schedule", "1f1b", "--pp", 2,
                                              "--microbatches", 2))
        report = pipewright.check(good, semantics="nccl", queues=8,
                                  max_activations=4)
        self.assertEqual(report, json.loads(command(
            "check", good, "--semantics", "nccl", "--queues", 8,
            "--max-activations", 4, "--json")))
        self.assertTrue(report["valid"] and report["fits"])
        text = good.read_text().replace("BW1", "", 1)
        bad = self.write("bad.pws", text)
        report = pipewright.check(bad)
        self.assertEqual(report, json.loads(command("check", bad, "--json",
                                                    codes=(4,))))
        self.assertEqual(report["error"]["exit"], 4)
        with self.assertRaises(pipewright.Error) as caught:
            pipewright.check(self.write("none.pws", "nothing"))
        self.assertEqual(caught.exception.file, str(self.folder / "none.pws"))
        with self.assertWarnsRegex(UserWarning, "tp"):
            pipewright.check(good, tp=4)

    def test_profiles_have_the_numbers_of_their_files(self):
        file = sorted((ROOT / "calibrate/profiles").glob("*.txtpb"))[0]
        profile = pipewright.load_profile(file)
        self.assertEqual(profile, pipewright.load_profile(file.stem))
        text = file.read_text()
        for key in ("passes", "copies", "transfers"):
            entries = re.findall(rf"^{key} {{", text, re.MULTILINE)
            self.assertEqual(len(profile[key]), len(entries))
        written = [float(value)
                   for value in re.findall(r"median_us: (\S+)", text)]
        times = []

        def walk(node):
            for key, value in (node.items() if isinstance(node, dict)
                               else enumerate(node)):
                if key == "median_s":
                    times.append(value)
                elif isinstance(value, (dict, list)):
                    walk(value)

        walk(profile)
        self.assertGreater(len(times), 10)
        self.assertEqual(sorted(times), sorted(us / 1e6 for us in written))


class Errors(Folder):
    def error(self, call, *args, **flags):
        with self.assertRaises(pipewright.Error) as caught:
            call(*args, **flags)
        return caught.exception

    def test_parts_are_those_of_the_command(self):
        error = self.error(pipewright.simulate, schedule="1f1b", pp=0)
        parts = json.loads(command("simulate", "--schedule", "1f1b", "--pp", 0,
                                   "--json", codes=(2,)))["error"]
        self.assertIsInstance(error, ValueError)
        self.assertEqual((error.field, error.value, error.allowed, error.file),
                         (parts["field"], "0", parts["allowed"], None))
        self.assertEqual(error.exit_code, parts["exit"])
        self.assertEqual(str(error), parts["message"].removeprefix("--"))
        self.assertEqual(pickle.loads(pickle.dumps(error)).field, error.field)

    def test_a_file_and_its_line_are_named_and_a_dict_is_not(self):
        file = self.write("run.yaml", "strategy:\n  pp: 0\n")
        error = self.error(pipewright.simulate, file)
        self.assertEqual((error.file, error.line), (str(file), 2))
        error = self.error(pipewright.simulate, {"strategy": {"pp": 0}})
        self.assertEqual((error.file, error.line, error.field),
                         (None, None, "strategy.pp"))
        self.assertTrue(str(error).startswith("strategy.pp: 0 is not allowed"))
        error = self.error(pipewright.simulate, {"strategy": {"ppp": 2}})
        self.assertIn("strategy.pp", str(error))
        error = self.error(pipewright.simulate, {"price": object()})
        self.assertEqual(error.field, "config")
        error = self.error(pipewright.simulate, "lama3-8b")
        self.assertIn("llama3-8b", str(error))
        with self.assertRaises(TypeError):
            pipewright.simulate(4)

    def test_keywords_are_named_as_python_has_them(self):
        error = self.error(pipewright.simulate, micro_batches=3)
        self.assertEqual(error.field, "micro_batches")
        self.assertIn("microbatches", str(error))
        error = self.error(pipewright.plan, "llama3-8b", fix={"tpp": 2})
        self.assertIn("tp", str(error))
        error = self.error(pipewright.plan, "llama3-8b", time=-1,
                           system="dgx-h100", global_batch=8)
        self.assertEqual((error.field, error.value), ("time", "-1s"))
        error = self.error(pipewright.sweep, None, {"pp": [1]},
                           filters="strategy.pp > 2", microbatches=2)
        self.assertEqual(error.field, "filters")
        error = self.error(pipewright.sweep)
        self.assertEqual(error.field, "sweep")
        error = self.error(pipewright.check, "a.pws", queues=0)
        self.assertEqual(error.field, "queues")
        error = self.error(pipewright.schedule, "zb-auto", pp=4, microbatches=8,
                           max_activations=0.5)
        self.assertEqual(error.exit_code, 3)

    def test_no_keyword_is_taken_twice(self):
        names = pipewright.flags()
        self.assertGreater(len(names), 50)
        self.assertFalse([name for name in names if keyword.iskeyword(name)])
        for call in ("simulate", "timeline", "schedule", "check", "plan",
                     "sweep"):
            own = inspect.signature(getattr(pipewright, call)).parameters
            self.assertFalse({*own} & {*names}, call)


class Threads(unittest.TestCase):
    def test_the_lock_is_released(self):
        made = []
        flags = {**ENDLESS, "microbatches": 100_000, "iterations": 1}
        worker = threading.Thread(
            target=lambda: made.append(pipewright.simulate(**flags)))
        worker.start()
        ticks = 0
        while worker.is_alive():
            ticks += 1
        # With the lock held, it would have been dead at the first or second.
        self.assertGreater(ticks, 1000)
        self.assertEqual(made[0]["ops"], 100_000 * 16 * 2)

    def test_calls_run_beside_each_other(self):
        alone = [pipewright.simulate(**{**UNIFORM, "microbatches": count})
                 for count in range(8, 16)]
        made = [None] * 8

        def run(index):
            made[index] = pipewright.simulate(
                **{**UNIFORM, "microbatches": 8 + index})

        workers = [threading.Thread(target=run, args=(index,))
                   for index in range(8)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        self.assertEqual(made, alone)

    def interrupt(self, call):
        timer = threading.Timer(
            0.3, lambda: os.kill(os.getpid(), signal.SIGINT))
        timer.start()
        self.addCleanup(timer.join)
        with self.assertRaises(KeyboardInterrupt):
            call()

    def test_control_c_ends_a_run_a_plan_and_a_sweep(self):
        self.interrupt(lambda: pipewright.simulate(**ENDLESS))
        self.interrupt(lambda: pipewright.plan(
            "llama3-70b", system="dgx-h100", nodes=64, global_batch=4096,
            confirm=0))
        points = pipewright.sweep(None, {"seed": [1, 2, 3]}, **ENDLESS)
        self.interrupt(lambda: next(points))
        self.assertIsNone(next(points, None))
        # And the next call works.
        self.assertEqual(pipewright.simulate(**UNIFORM)["pp"], 4)

    def test_a_handler_may_raise_what_it_likes(self):
        def raises(number, frame):
            raise TimeoutError("too long")

        before = signal.signal(signal.SIGALRM, raises)
        self.addCleanup(signal.signal, signal.SIGALRM, before)
        signal.setitimer(signal.ITIMER_REAL, 0.2)
        with self.assertRaisesRegex(TimeoutError, "too long"):
            pipewright.simulate(**ENDLESS)

    def test_a_sweep_may_be_left_unfinished(self):
        program = ("import pipewright\n"
                   "points = pipewright.sweep(None, {'pp': '1..64'},"
                   " microbatches=256)\n"
                   "print(next(points)['status'])\n")
        done = subprocess.run([sys.executable, "-W", "ignore", "-c", program],
                              check=False, capture_output=True, text=True)
        self.assertEqual((done.stdout, done.stderr, done.returncode),
                         ("ok\n", "", 0))


class Package(Folder):
    def test_every_public_name_has_its_stub(self):
        tree = ast.parse((PACKAGE / "__init__.pyi").read_text())
        stubs = {node.name: node for node in tree.body
                 if isinstance(node, (ast.FunctionDef, ast.ClassDef))}
        self.assertEqual(sorted(stubs), pipewright.__all__)
        public = {name for name in vars(pipewright) if not name.startswith("_")}
        self.assertEqual(public, set(pipewright.__all__))
        for name, node in stubs.items():
            made = getattr(pipewright, name)
            if isinstance(node, ast.ClassDef):
                made = made.__init__
                node = node.body[-1]
                self.assertEqual(
                    {field.target.id for field in stubs[name].body[:-1]},
                    set(vars(pipewright.Error("x"))))
            arguments = node.args
            self.assertIsNotNone(node.returns, name)
            stubbed = [argument.arg for argument in arguments.args +
                       arguments.kwonlyargs]
            if arguments.kwarg:
                stubbed.append(arguments.kwarg.arg)
            self.assertEqual(stubbed, [*inspect.signature(made).parameters],
                             name)
            for argument in arguments.args + arguments.kwonlyargs:
                self.assertTrue(argument.annotation or argument.arg == "self")

    def test_the_page_shows_what_comes_out(self):
        text = (ROOT / "docs/python.md").read_text()
        text = re.sub(r"^```.*$", "", text, flags=re.MULTILINE)
        test = doctest.DocTestParser().get_doctest(text, {}, "python.md",
                                                   "python.md", 0)
        self.assertGreater(len(test.examples), 10)
        self.enterContext(Inside(self.folder))
        said = []
        failed, _ = doctest.DocTestRunner(
            optionflags=doctest.ELLIPSIS).run(test, out=said.append)
        self.assertEqual(failed, 0, "".join(said))

    def test_a_wheel_works_in_a_fresh_environment(self):
        source = self.folder / "source"
        shutil.copytree(os.environ["PIPEWRIGHT_WHEEL_SOURCE"], source,
                        ignore=shutil.ignore_patterns("build", "*.egg-info"))
        pip = ["-m", "pip", "--disable-pip-version-check", "--quiet"]
        offline = ["--no-index", "--no-build-isolation"]
        subprocess.run([sys.executable, *pip, "wheel", *offline, "-w",
                        self.folder, source], check=True)
        wheels = list(self.folder.glob("*.whl"))
        self.assertEqual(len(wheels), 1)
        self.assertNotIn("none-any", wheels[0].name)
        venv.create(self.folder / "venv", with_pip=True)
        python = self.folder / "venv/bin/python"
        clean = {key: value for key, value in os.environ.items()
                 if key != "PYTHONPATH"}
        subprocess.run([python, *pip, "install", *offline, wheels[0]],
                       check=True, env=clean)
        program = (f"import json, pipewright; flags = {UNIFORM!r}\n"
                   f"engine = {'simgrid' if HAS_SIMGRID else 'fast'!r}\n"
                   "print(pipewright.__file__)\n"
                   "print(json.dumps(pipewright.simulate(engine=engine,"
                   " **flags)))\n"
                   "try: pipewright.timeline(**flags)\n"
                   "except ImportError as error: print(error)\n")
        done = subprocess.run([python, "-c", program], check=True, text=True,
                              capture_output=True, env=clean, cwd=self.folder)
        where, report, why = done.stdout.splitlines()
        self.assertTrue(where.startswith(str(self.folder / "venv")), where)
        engine = "simgrid" if HAS_SIMGRID else "fast"
        self.assertEqual(json.loads(report),
                         pipewright.simulate(engine=engine, **UNIFORM))
        self.assertIn("numpy", why)


class Inside:
    """The current folder, for a while."""

    def __init__(self, folder):
        self.folder = folder

    def __enter__(self):
        self.before = os.getcwd()
        os.chdir(self.folder)

    def __exit__(self, *_):
        os.chdir(self.before)


if __name__ == "__main__":
    unittest.main()
