"""Each command answers at once: before torch is loaded, in a terminal, and to Ctrl-C.

Told by what is loaded and by what ends, not by the clock.
"""

import json
import os
import re
import signal
import subprocess
import sys
import time
from importlib import import_module
from pathlib import Path

import pytest
from click.testing import CliRunner

from torch_ir.cli import COMMANDS, main

ROOT = Path(__file__).parents[2]
PROGRAM = "ir {\n  input %x: f32[2]\n  %y: f32[2] = aten.relu.default(%x)\n  return %y\n}\n"
CALM = {"TERM": "dumb", "NO_COLOR": "1", "COLUMNS": "80"}
DRIVER = """
import json, os, pty, sys
from importlib.machinery import ModuleSpec, PathFinder

class Stop:
    def create_module(self, spec): pass
    def exec_module(self, module):
        print(f"|torch after {len(sys.modules)} modules|", file=sys.stderr, flush=True)
        os._exit(99)

found = PathFinder.find_spec
def find_spec(name, *rest):
    if name == "openvino":
        return None
    return ModuleSpec(name, Stop()) if name == "torch" else found(name, *rest)
PathFinder.find_spec = find_spec
from torch_ir.cli.process import run

def call(args):
    pid, terminal = pty.fork()
    if not pid:
        sys.argv = ["torch-ir", *args]
        run()
    shown = b""
    while True:
        try:
            part = os.read(terminal, 4096)
        except OSError:  # the other side is closed
            part = b""
        if not part:
            break
        shown += part
    os.close(terminal)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), shown.decode()

print(json.dumps([call(args) for args in json.load(sys.stdin)]))
"""
CALLS = {
    "extract": ["net.py:Net"],
    "show": ["m.ir"],
    "view": ["m.ir"],
    "plot": ["report.json", "-o", "plot.svg"],
    "info": ["m.ir"],
    "check": ["m.ir"],
    "diff": ["m.ir", "m.ir"],
    "fingerprint": ["m.ir"],
    "cost": ["m.ir"],
    "cut": ["m.ir", "--nodes", "y"],
    "shard": ["m.ir", "--ranks", "2", "--split", "w=0", "-o", "ranks"],
    "lower": ["m.ir"],
    "opt": ["m.ir"],
    "run": ["m.ir", "--random"],
    "profile": ["m.ir", "--random"],
    "bench": ["m.ir", "--random"],
    "plan": ["m.ir"],
    "support": ["m.ir", "--backend", "tuned"],
    "partition": ["m.ir", "--backend", "tuned"],
    "verify": ["m.ir", "net.py:Net"],
    "validate": ["m.ir", "--random"],
    "conform": ["--backend", "tuned"],
    "fuzz": ["--backend", "tuned"],
    "cases": ["m.ir"],
    "bisect": ["m.ir", "-p", "decompose", "--random"],
    "reduce": ["m.ir", "--run", "aten", "--random", "-o", "small"],
    "compare": ["m.ir", "--random"],
    "convert": ["m.ir", "m.pt2"],
    "operators": [],
    "extensions": [],
    "completion": ["bash"],
}


def call_of(name):
    """A call of a command; a new one may be used wrongly, but at once."""
    return list(CALLS.get(name, ["m.ir", "--random"]))


WRONG = {
    "FILE": "absent.tir",
    "--passes": "csee",
    "--backend": "openvnio",
    "--backends": "tuned,openvnio",
    "--run": "eagerr",
    "--against": "eagerr",
    "--weights": "absent.safetensors",
    "--inputs": "absent.npz",
    "--constants": "absent.npz",
    "--baseline": "absent.json",
    "--cases": "absent",
    "--expect": "absent.txt",
    "--transformers": "absent.json",
    "--overlay": "absent.json",
    "--plan": "absent.json",
    "--record": "absent/x.npz",
    "--capture": "absent/x.safetensors",
    "--chrome": "absent/x.json",
    "--repro": "m.ir/x",
    "--output": "m.ir/x",
    "--jsno": "",
}
NOT_WRONG = {"operators", ("convert", "--weights"), ("convert", "--output"), ("cut", "--inputs")}
"""Operators by their names; what other options allow or mean otherwise."""


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "m.ir").write_text(PROGRAM)
    (tmp_path / "net.py").write_text("import torch\n")
    (tmp_path / "report.json").write_text('{"values": {"x": [1.0, 2.0]}}')
    return tmp_path


def seen(folder, listed, **variables):
    """What a terminal shows of calls that stop where torch is loaded, each in a process."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", DRIVER],
        input=json.dumps(listed),
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src"), **CALM, **variables},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_a_terminal_shows_something_before_torch_is_loaded(folder):
    listed = [[name, *call_of(name)] for name in COMMANDS if name != "browse"]
    for args, (code, shown) in zip(listed, seen(folder, listed), strict=True):
        before, marker, after = shown.partition("|torch after ")
        assert before.strip() or not marker, args
        assert code == (99 if marker else 0) or args[0] not in CALLS, (args, shown)
        assert not marker or int(after.split()[0]) < 520, (args, after)


def test_a_terminal_shows_that_a_long_file_is_read(folder):
    nodes = "\n".join(f"  %y{i}: f32[2] = aten.relu.default(%x)" for i in range(3000))
    (folder / "m.ir").write_text(PROGRAM.replace("  %y:", nodes + "\n  %y:", 1))
    listed = [[name, *args] for name, args in CALLS.items() if args[:1] == ["m.ir"]]
    for args, (_, shown) in zip(listed, seen(folder, listed, TERM="xterm"), strict=True):
        assert re.match(r"\S* ?(\W reading m\.ir|loading PyTorch)", shown.strip()), (args, shown)


def wrong_calls():
    for name in COMMANDS:
        command = import_module(f"torch_ir.cli.commands.{name}").command
        options = {option for parameter in command.params for option in parameter.opts}
        for option in WRONG:
            if not {name, (name, option)} & NOT_WRONG and option in {*options, "file", "--jsno"}:
                args = call_of(name)
                while option in args:
                    del args[args.index(option) : args.index(option) + 2]
                yield [name, *args, option, WRONG[option]]
        if "file" in options and name not in NOT_WRONG:
            yield [name, WRONG["FILE"], *call_of(name)[1:]]


def test_what_is_wrong_is_said_before_torch_is_loaded(folder):
    listed = list(wrong_calls())
    assert len(listed) > 80
    for args, (code, shown) in zip(listed, seen(folder, listed), strict=True):
        assert code in (1, 2), (args, shown)
        assert "rror: " in shown, (args, shown)
        assert "PyTorch" not in shown, (args, shown)
        assert shown.count("\n") <= 8, (args, shown)
        assert [line for line in shown.splitlines() if not fits(line)] == [], args


def test_a_backend_that_cannot_run_is_refused_before_torch_is_loaded(folder):
    """Each option that names backends, with one whose package is missing and a misspelt one."""
    listed = [call for call in wrong_calls() if "openvnio" in call[-1]]
    assert len(listed) >= 8
    missing = [[*call[:-1], call[-1].replace("openvnio", "openvino")] for call in listed]
    for args, (code, shown) in zip(
        [*listed, *missing], seen(folder, [*listed, *missing]), strict=True
    ):
        unknown = ("there is no backend 'openvnio'", "Did you mean openvino?")
        lacking = ("'openvino' needs openvino, which is not installed", "torch-ir[openvino]")
        told = " ".join(shown.split())
        assert code == 1, (args, shown)
        for text in lacking if "openvino" in args[-1] else unknown:
            assert text in told, (args, shown)


def fits(line, variables=CALM):
    """Whether a line has so many columns and no code for a terminal, or is one word."""
    columns = int(variables.get("COLUMNS", 10**6))
    return "\x1b" not in line and (len(line) <= columns or len(line.split()) == 1)


LONG = """ir {
  symbol s0: 2..77
  func &the_branch_that_is_taken_for_positive_sums "positive" {
    symbol s0: 2..77
    input %tokens_of_the_branch: f32[s0, 8]
    %the_result_of_an_activation_function: f32[s0, 8] = aten.relu.default(%tokens_of_the_branch)
    return %the_result_of_an_activation_function
  }
  func &the_branch_that_is_taken_for_negative_sums "negative" {
    symbol s0: 2..77
    input %tokens_of_the_branch: f32[s0, 8]
    %the_negative_of_the_tokens: f32[s0, 8] = aten.neg.default(%tokens_of_the_branch)
    return %the_negative_of_the_tokens
  }
  input %tokens_of_the_first_sentence_of_the_batch: f32[s0, 8]
  %sum_of_all_tokens_of_the_first_sentence_of_the_batch: f32[] = aten.sum.default(\
%tokens_of_the_first_sentence_of_the_batch)
  %is_positive: b8[] = aten.gt.Scalar(%sum_of_all_tokens_of_the_first_sentence_of_the_batch, \
other=0)
  %cond.0: f32[s0, 8] = cond: higher_order.cond(pred=%is_positive, \
operands=[%tokens_of_the_first_sentence_of_the_batch], \
true_fn=&the_branch_that_is_taken_for_positive_sums, \
false_fn=&the_branch_that_is_taken_for_negative_sums)
  %the_result_of_a_normalization_layer: f32[s0, 8] = aten.softmax.int(%cond.0, -1)  \
# model_of_the_branches.py:27 in the.first.layer (net.Layer): return x.softmax(-1)
  return %the_result_of_a_normalization_layer
}
"""
WAYS = {
    "terminal": {"COLUMNS": "80"},
    "without colors": {"COLUMNS": "80", "NO_COLOR": "1"},
    "wide": {"COLUMNS": "120"},
    "pipe": {},
}


def calls_to_look_at():
    """Every command with its help, but for those that take the terminal or seconds."""
    known = {
        name: call_of(name)
        for name in COMMANDS
        if name not in ("browse", "conform", "bench", "fuzz")
    }
    known |= {"extract": ["net.py:build"], "verify": ["m.ir", "net.py:build"]}
    known |= {"cut": ["m.ir", "--nodes", "the_result_of_a_normalization_layer"]}
    for name, args in known.items():
        random = ["--symbol", "s0=3"] if "--random" in args else []
        yield [name, *args, *random]
    yield from [[], ["--help"], ["opt", "--list"]]
    yield from ([name, "--help"] for name in COMMANDS)


def test_every_command_fits_its_terminal_and_has_colors_nowhere_else(folder, monkeypatch):
    monkeypatch.chdir(folder)
    (folder / "m.ir").write_text(LONG)
    (folder / "net.py").write_text(
        "import torch\nclass Net(torch.nn.Module):\n  def forward(self, x): return x.relu()\n"
        "def build(): return Net(), (torch.ones(2, 8),)\n"
    )
    calls, painted, words = list(calls_to_look_at()), set(), {}
    for way, variables in WAYS.items():
        with monkeypatch.context() as patch:
            patch.delenv("NO_COLOR", raising=False)
            for name, value in {"TERM": "xterm", "LINES": "999", **variables}.items():
                patch.setenv(name, value)
            if way != "pipe":
                patch.setattr("click.testing._NamedTextIOWrapper.isatty", lambda self: True)
            for args in calls:
                done = CliRunner().invoke(main, args, prog_name="torch-ir", color=way != "pipe")
                assert done.exit_code in (0, 1) or args[0] not in CALLS, (args, done.output)
                plain = re.sub(r"\x1b\[\d+m", "", done.output)
                painted |= {way} if plain != done.output else set()
                if way != "pipe":  # what progress draws over, and how
                    plain = re.sub(r".*\r|\x1b\[\d*[AK]", "", plain)
                wide = [line for line in plain.splitlines() if not fits(line, variables)]
                assert wide == [], (way, args)
                if not {"--random", "--help"} & {*args}:  # no times, no choices of click's
                    said = re.sub(r"\x1b\[\d+m", "", done.stdout).split()
                    assert words.setdefault(tuple(args), said) == said, (way, args)
    assert painted == {"terminal", "wide"}


@pytest.mark.parametrize(
    "args",
    [["nope"], ["--nope"], ["show"], *([name, "--nope"] for name in COMMANDS)],
    ids=" ".join,
)
def test_wrong_use_has_the_color_of_an_error_in_a_terminal_alone(args, monkeypatch):
    for way, variables in WAYS.items():
        with monkeypatch.context() as patch:
            patch.delenv("NO_COLOR", raising=False)
            for name, value in {"TERM": "xterm", **variables}.items():
                patch.setenv(name, value)
            if way != "pipe":
                patch.setattr("click.testing._NamedTextIOWrapper.isatty", lambda self: True)
            done = CliRunner().invoke(main, args, prog_name="torch-ir", color=way != "pipe")
        assert (done.exit_code, done.stdout) == (2, "")
        assert done.stderr.startswith("Usage: torch-ir ")
        error = "\x1b[31mError\x1b[0m:" if way in ("terminal", "wide") else "Error:"
        assert f" --help' for help.\n\n{error} " in done.stderr
        assert ("\x1b" in done.stderr) is ("\x1b" in error)


_SAY = "import os\nos.write(1, b'|busy\\n')\n"  # what is printed goes to stderr
BUSY = {
    "an import": f"{_SAY}sum(range(10**15))\n",
    "Python": f"{_SAY}while True:\n    pass\n",
    "a kernel": f"import hashlib\n{_SAY}hashlib.pbkdf2_hmac('sha256', b'', b'', 2 * 10**9)\n",
}


@pytest.mark.parametrize(
    ("what", "status"),
    [("torch", -signal.SIGINT), ("click", -signal.SIGINT), ("a kernel", 130), ("Python", 130)],
)
def test_an_interrupt_ends_every_work(folder, what, status):
    args = ["check", "m.ir"]
    if what in ("torch", "click"):  # loaded for hours, and holds the interpreter
        (folder / "lib" / what).mkdir(parents=True)
        (folder / "lib" / what / "__init__.py").write_text(BUSY["an import"])
    else:
        (folder / "slow.py").write_text(BUSY[what])
        args += ["--import", "slow.py"]
    path = os.pathsep.join([str(folder / "lib"), str(ROOT / "src")])
    process = subprocess.Popen(
        [sys.executable, "-m", "torch_ir", *args],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": path},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # A run in the background of a shell ignores interrupts, and so would what it starts.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    try:
        assert process.stdout.readline() == "|busy\n"
        time.sleep(0.5)  # until the call of C has begun
        process.send_signal(signal.SIGINT)
        assert "Traceback" not in process.communicate(timeout=60)[1]
        assert process.returncode == status
    finally:
        process.kill()
