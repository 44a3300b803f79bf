import ast
import importlib.util
import json
from pathlib import Path

EXAMPLES = Path(__file__).parents[2] / "examples"


def test_the_gallery_is_written(tmp_path):
    spec = importlib.util.spec_from_file_location("gallery", EXAMPLES / "gallery.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    names = ["flow", "quantized", "quantization", "histogram"]
    files = module.gallery(tmp_path, names)
    assert [file.stem for file in files] == names
    for file in files:
        text = file.read_text()
        assert "Content-Security-Policy" in text
        assert len(text) < 2_000_000


def test_every_cell_of_the_notebook_shows_something():
    book = json.loads((EXAMPLES / "gallery.ipynb").read_text())
    names, shown = {"__name__": "__main__"}, []
    for cell in book["cells"]:
        if cell["cell_type"] != "code":
            continue
        assert cell["outputs"] == [], "times and frames are no part of the repository"
        *steps, last = ast.parse("".join(cell["source"])).body
        exec(compile(ast.Module(steps, []), "cell", "exec"), names)
        value = eval(compile(ast.Expression(last.value), "cell", "eval"), names)
        shown.append((type(value).__name__, value._repr_html_()))
    assert len({name for name, _ in shown}) == 11
    assert all(text.startswith("<") and "<script" not in text for _, text in shown)
    pictured = {name for name, text in shown if text.startswith("<svg")}
    assert pictured == {"MemoryPlan", "Profile", "Plot", "Captured", "ValidationReport"}
