"""Distinct calls of programs: their number, their ids, their vectors."""

import json
import subprocess
import sys
from collections import Counter

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file
from tests.small_models import CASES

from torch_ir import CaseSet, cases, compare, extract_ir, parse
from torch_ir.errors import InvalidIRError, SerializationError
from torch_ir.ir.functions import written_out
from torch_ir.ops.schema import default_of, lookup

NAMES = ["linear", "conv", "attention", "embedding", "casts", "llama"]


def program(name):
    case = CASES[name]
    arguments, keywords = case.inputs()
    return extract_ir(case.model(), arguments, kwargs=keywords)


@pytest.fixture(scope="module")
def programs():
    return {name: program(name) for name in NAMES}


def counted_again(programs):
    """The distinct calls without strides, counted in another way."""
    found = Counter()
    for ir in programs.values():
        for _, _, node in written_out(ir).walk():
            schema = lookup(node.op_type)
            attrs = (
                {a.name: default_of(a) for a in schema.arguments if a.default is not None}
                if schema
                else {}
            )
            attrs = {k: v for k, v in attrs.items() if k not in node.slots} | dict(node.attrs)
            types = [(m.dtype, m.shape) for m in node.inputs]
            found[
                repr(
                    (
                        node.op_type,
                        sorted(attrs.items()),
                        sorted(node.slots.items()),
                        types,
                    )
                )
            ] += 1
    return found


def test_number_and_counts_are_those_of_another_count(programs):
    for chosen in ({"llama": programs["llama"]}, programs):
        found, wanted = cases(chosen, strides=False), counted_again(chosen)
        assert len(found) == len(wanted)
        assert sorted(case.count for case in found) == sorted(wanted.values())
        assert sum(case.count for case in found) == sum(
            len(list(written_out(ir).walk())) for ir in chosen.values()
        )


def test_ids_do_not_depend_on_names_or_order(programs):
    forward = [case.id for case in cases(programs)]
    backward = [case.id for case in cases(dict(reversed(programs.items())))]
    assert forward == backward
    assert len(set(forward)) == len(forward)
    x = "input %x: f32[s0, 4]\n%y: f32[s0, 4] = aten.relu.default(%x)\nreturn %y"
    a, b = (
        parse(f"ir {{\nsymbol s0: 1..8\n{x}\n}}"),
        parse("ir {\nsymbol q: 1..8\n" + x.replace("s0", "q") + "\n}"),
    )
    assert [c.id for c in cases([a], strides=False)] == [c.id for c in cases([b], strides=False)]
    assert cases([a, b], strides=False).cases[0].count == 2


def test_strides_make_another_case():
    ir = parse("""ir {
      input %x: f32[2, 3]
      %t: f32[3, 2] = aten.t.default(%x)
      %a: f32[3, 2] = aten.relu.default(%t)
      %b: f32[3, 2] = aten.clone.default(%t, memory_format=torch.contiguous_format)
      %c: f32[3, 2] = aten.relu.default(%b)
      return %a, %c
    }""")
    relu = cases([ir]).where(operator="aten.relu.*")
    assert sorted(case.inputs[0].strides for case in relu) == [(1, 3), (2, 1)]
    assert len(cases([ir], strides=False).where(operator="aten.relu.*")) == 1
    for case in relu:
        assert case.tensors()[0].stride() == case.inputs[0].strides


def test_a_suite_is_the_same_bytes_again_and_loads(programs, tmp_path):
    found = cases({"attention": programs["attention"], "casts": programs["casts"]})
    for name in ("a", "b"):
        found.save(tmp_path / name)
    files = sorted(
        p.relative_to(tmp_path / "a") for p in (tmp_path / "a").rglob("*") if p.is_file()
    )
    assert files
    for file in files:
        assert (tmp_path / "a" / file).read_bytes() == (tmp_path / "b" / file).read_bytes()
    loaded = CaseSet.load(tmp_path / "a")
    assert loaded == found
    assert loaded[found.cases[0].id].program.check() == ()
    document = json.loads((tmp_path / "a" / "cases.json").read_text())
    with_vectors = [r for r in document["cases"] if r["vectors"]]
    assert len(with_vectors) >= 0.8 * len(found)
    for record in with_vectors:
        values = load_file(tmp_path / "a" / record["vectors"])
        assert {k for k in values if k.startswith("input")} == {
            o["name"] for o in record["inputs"]
        }
        assert all(
            np.isfinite(v).all() or v.dtype.kind != "f"
            for k, v in values.items()
            if k.startswith("input")
        )
    (tmp_path / "a" / "cases.json").write_text("{}")
    with pytest.raises(SerializationError):
        CaseSet.load(tmp_path / "a")


def test_each_case_agrees_with_torch(programs):
    for case in cases({"conv": programs["conv"], "llama": programs["llama"]}):
        report = compare(case.program, {}, case.tensors(), run="eager", symbols=case.sizes())
        assert report.verdict != "disagree", f"{case.id}: {report}"


def test_the_files_are_tests_of_a_backend(tmp_path):
    ir = parse("ir {\ninput %x: f32[3]\n%y: f32[3] = aten.exp.default(%x)\nreturn %y\n}")
    cases([ir]).save(tmp_path)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tmp_path)],
        env={"PYTHONPATH": ":".join(sys.path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "1 passed" in done.stdout, done.stdout + done.stderr


def test_reports_and_errors():
    ir = parse("ir {\ninput %x: f32[3]\n%y: f32[3] = aten.exp.default(%x)\nreturn %y\n}")
    found = cases([ir], strides=False)
    assert str(found).splitlines()[0] == "1 case in 1 call"
    assert "<table>" in found._repr_html_()
    assert json.loads(json.dumps(found.to_dict()))["version"] == 1
    assert len(found.where(dtype="int64")) == 0
    with pytest.raises(InvalidIRError, match="there is no case 'x'"):
        found["x"]
    assert torch.equal(found.cases[0].tensors()[0], found.cases[0].tensors()[0])


def test_no_torch_is_needed_without_strides(tmp_path):
    parse("ir {\ninput %x: f32[3]\n%y: f32[3] = aten.exp.default(%x)\nreturn %y\n}").save(
        tmp_path / "m.tir"
    )
    script = (
        "import sys, torch_ir\nir = torch_ir.IR.load(sys.argv[1])\n"
        "torch_ir.cases([ir], strides=False).save(sys.argv[2])\nassert 'torch' not in sys.modules"
    )
    subprocess.run(
        [sys.executable, "-c", script, str(tmp_path / "m.tir"), str(tmp_path / "suite")],
        env={"PYTHONPATH": ":".join(sys.path)},
        check=True,
    )
    assert list((tmp_path / "suite" / "vectors").iterdir())
