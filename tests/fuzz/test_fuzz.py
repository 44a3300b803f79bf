"""Mutated files end in a value or an error of this package, and programs in what they say.

``tools/fuzz.py`` is the whole of it; here are a few hundred files of each kind, and those that
showed a fault once.
"""

from pathlib import Path
from random import Random

import pytest

from project.tool import ROOT

FOUND = sorted((Path(__file__).parent / "found").iterdir())


@pytest.fixture(scope="module")
def tool():
    import sys

    sys.path.insert(0, str(ROOT / "tools"))
    import fuzz

    yield fuzz
    sys.path.remove(str(ROOT / "tools"))


@pytest.mark.parametrize("path", FOUND, ids=lambda path: path.name)
def test_a_file_that_showed_a_fault_shows_none(tool, path, capsys):
    assert tool.replay([path]) == 0, capsys.readouterr().out


@pytest.mark.parametrize("kind", ["json", "text", "archive", "old", "weights"])
def test_mutated_files(tool, kind, capsys, tmp_path, monkeypatch):
    monkeypatch.setattr(tool, "OUT", tmp_path)
    (fuzzer,) = [found[kind] for found in tool.fuzz(200, 0, [kind])]
    assert not fuzzer.tally.faults, capsys.readouterr().out
    assert fuzzer.tally.loads.total() == 200
    assert fuzzer.tally.loads["accepted"] > 20
    assert kind == "weights" or fuzzer.tally.programs["equal"] > 0


def test_the_same_seed_makes_the_same_files(tool, tmp_path):
    first, again = (tool.Fuzzer("json", 3, tmp_path) for _ in range(2))
    files = [first.file(number) for number in range(50)]
    assert files == [again.file(number) for number in range(50)]
    assert len(set(files)) > 40


def test_programs_that_keep_to_their_types_run(tool):
    import fuzz_judging
    from fuzz_programs import edited_program

    outcomes = []
    for number in range(60):
        random = Random(number)
        sample = random.choice(sorted((tool.CORPUS / "text").iterdir()))
        made = edited_program(sample.read_bytes(), "text", random)
        if made is not None:
            ir = fuzz_judging.judge("text", made, Path()).ir
            outcomes.append(fuzz_judging.run_and_compare(ir)[0])
    assert outcomes.count("equal") > len(outcomes) / 2


def test_the_corpus_stays_small(tool):
    for kind in tool.MUTATORS:
        files = [*(tool.CORPUS / kind).iterdir()]
        assert 0 < len(files) <= tool.MAX_FILES
        assert sum(file.stat().st_size for file in files) < 300_000


class TestWhatIsCalledAFault:
    """The judge itself: a reader that breaks a promise is found out."""

    def judged(self, tool, monkeypatch, read):
        import fuzz_judging

        monkeypatch.setattr(fuzz_judging, "read", read)
        with pytest.raises(fuzz_judging.FaultError) as caught:
            fuzz_judging.judge("json", b"{}", Path())
        return caught.value.args[0]

    def test_an_error_of_another_family(self, tool, monkeypatch):
        def read(*_):
            raise IndexError

        assert self.judged(tool, monkeypatch, read) == "IndexError while it is loaded"

    def test_a_slow_load(self, tool, monkeypatch):
        import fuzz_judging

        class Clock:
            seconds = iter((0.0, 1.1))

            def process_time(self):
                return next(self.seconds)

        def read(*_):
            pass

        monkeypatch.setattr(fuzz_judging, "time", Clock())
        assert self.judged(tool, monkeypatch, read) == "slow load"

    def test_a_wrong_value(self, tool, monkeypatch):
        import fuzz_judging
        import torch_ir

        ir = torch_ir.parse(
            "ir {\n input %x: f32[2]\n %y: f32[2] = aten.relu.default(%x)\n return %y\n}"
        )
        assert fuzz_judging.run_and_compare(ir) == ("equal", "")
        plain = fuzz_judging.read_plainly

        def wrong(*given):
            return {name: value + 1 for name, value in plain(*given).items()}

        monkeypatch.setattr(fuzz_judging, "read_plainly", wrong)
        with pytest.raises(fuzz_judging.FaultError, match="a wrong value"):
            fuzz_judging.run_and_compare(ir)

    def test_a_process_that_dies(self, tool):
        import os

        child = tool.Child()
        answer, death = child.run(lambda: os.kill(os.getpid(), 9))
        assert (answer, death) == (None, "SIGKILL")
        assert child.run(lambda: [1]) == ([1], "")
