import importlib.util
from pathlib import Path

GALLERY = Path(__file__).parents[2] / "examples" / "gallery.py"


def test_the_gallery_is_written(tmp_path):
    spec = importlib.util.spec_from_file_location("gallery", GALLERY)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    names = ["flow", "quantized", "quantization", "histogram"]
    files = module.gallery(tmp_path, names)
    assert [file.stem for file in files] == names
    for file in files:
        text = file.read_text()
        assert "Content-Security-Policy" in text
        assert len(text) < 2_000_000
