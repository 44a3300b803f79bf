"""Files, functions, classes and folders that are too large are found."""

from project.tool import load_tool

sizes = load_tool("check_sizes")

LINE = "    x = 1\n"


def test_a_file_has_600_lines_at_most():
    assert list(sizes.oversized("ok.py", "x = 1\n" * 600)) == []
    assert list(sizes.oversized("long.py", "x = 1\n" * 601)) == [
        "long.py: 601 lines, the limit is 600"
    ]


def test_a_function_has_60_lines_at_most():
    assert list(sizes.oversized("ok.py", "def f():\n" + LINE * 59)) == []
    for head in ("def f():\n", "async def f():\n"):
        assert list(sizes.oversized("long.py", head + LINE * 60)) == [
            "long.py:1: f has 61 lines, the limit is 60"
        ]


def test_a_class_has_200_lines_at_most():
    assert list(sizes.large_classes("ok.py", "class A:\n" + LINE * 199)) == []
    assert list(sizes.large_classes("long.py", "\nclass A:\n" + LINE * 200)) == [
        "long.py:2: A has 201 lines, the limit is 200"
    ]
    inner = "def f():\n    class A:\n" + "        x = 1\n" * 200
    assert list(sizes.large_classes("long.py", inner)) == [
        "long.py:2: A has 201 lines, the limit is 200"
    ]


def test_a_folder_holds_15_files_at_most():
    files = [f"src/a/m{number}.py" for number in range(16)]
    inner = [f"src/a/b/m{number}.py" for number in range(15)]
    assert list(sizes.crowded(["src/a/__init__.py", *files[:15], *inner])) == []
    assert list(sizes.crowded([*files, *inner])) == ["src/a: 16 files, the limit is 15"]


def test_folders_of_registries_hold_a_file_for_each_row():
    for folder in ("src/torch_ir/semantics/operators", "src/torch_ir/cli/commands"):
        names = [f"m{number}.py" for number in range(16)]
        assert list(sizes.crowded(f"{folder}/{name}" for name in names)) == []
        assert list(sizes.crowded(f"{folder}/more/{name}" for name in names)) != []


def test_two_modules_at_most_have_one_name():
    rows = [f"src/torch_ir/{folder}/{name}.py" for folder in ("cli", "semantics") for name in "ab"]
    files = ["src/a/m.py", "src/b/m.py", *(f"src/{name}/__init__.py" for name in "abc"), *rows]
    assert list(sizes.repeated_modules(files)) == []
    assert list(sizes.repeated_modules([*files, "src/c/m.py"])) == [
        "m.py is the name of src/a/m.py, src/b/m.py, src/c/m.py: the limit is 2"
    ]


def test_two_classes_have_two_names():
    files = {"a.py": "class A: ...\nclass _P: ...\n", "b.py": "class B: ...\n"}
    assert list(sizes.repeated_classes(files)) == []
    assert list(sizes.repeated_classes({**files, "c.py": "class _P: ...\n"})) == [
        "class _P is defined in a.py, c.py: names of classes are unique"
    ]
    assert list(sizes.repeated_classes({**files, "c.py": "class A: ...\n"})) == [
        "class A is defined in a.py, c.py: names of classes are unique"
    ]


def test_this_tree_keeps_to_the_limits():
    assert sizes.main() == 0
