"""What the design promises about the code itself: layers, light imports, names, size."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT

PACKAGE = ROOT / "commprof"
MODULES = sorted(path for path in PACKAGE.rglob("*.py"))
TOP_LEVEL = {"pyproject.toml", "README.md", "commprof", "fixtures", "tests", "reports", "LICENSE", "CHANGELOG.md"}
HEAVY = ("torch", "pandas", "plotly", "selenium")


def imports_of(path: Path) -> set[str]:
    """Top-level packages that a module imports, anywhere in it."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found.add(node.module.partition(".")[0])
    return found


def test_the_top_level_is_what_the_design_says() -> None:
    tracked = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False)
    if tracked.returncode:
        pytest.skip("not a git checkout")

    names = {line.partition("/")[0] for line in tracked.stdout.splitlines()}

    assert {name for name in names if not name.startswith(".")} == TOP_LEVEL


def test_only_capture_imports_torch() -> None:
    others = [path for path in MODULES if not path.is_relative_to(PACKAGE / "capture")]

    assert len(others) > 200
    assert [str(path.relative_to(PACKAGE)) for path in others if "torch" in imports_of(path)] == []


def test_no_module_is_a_drawer_for_everything() -> None:
    names = {path.stem for path in MODULES} | {path.name for path in PACKAGE.rglob("*") if path.is_dir()}

    assert not names & {"utils", "util", "helpers", "common", "misc"}


def test_modules_stay_small() -> None:
    sizes = {str(path.relative_to(PACKAGE)): len(path.read_text(encoding="utf-8").splitlines()) for path in MODULES}

    assert {name: size for name, size in sizes.items() if size > 420} == {}


@pytest.mark.parametrize("package", ["analysis", "capture", "diagnosis", "report", "report/charts", "synth", "trace"])
def test_the_map_of_a_package_lists_each_of_its_modules_once(package: str) -> None:
    folder = PACKAGE / package
    there = {path.stem for path in folder.glob("*.py")} | {path.parent.name for path in folder.glob("*/*.py")}

    text = ast.get_docstring(ast.parse((folder / "__init__.py").read_text(encoding="utf-8"))) or ""

    listed = re.findall(r"^ {4}(\w+) {2,}\S", text, re.MULTILINE)
    assert sorted(listed) == sorted(there - {"__init__"})


@pytest.mark.parametrize("arguments", [["--help"], ["analyze", "--help"], ["--version"]])
def test_help_imports_nothing_heavy(arguments: list[str]) -> None:
    code = (
        "import sys; from commprof.cli.app import main; code = main(sys.argv[1:]); "
        f"print(code, sorted(set({HEAVY!r}) & set(sys.modules)))"
    )

    run = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=True)

    assert run.stdout.splitlines()[-1] == "0 []"


def test_importing_the_package_imports_nothing_heavy() -> None:
    code = f"import sys, commprof; print(sorted(set({(*HEAVY, 'numpy')!r}) & set(sys.modules)))"

    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert run.stdout.strip() == "[]"


def test_analysis_imports_no_torch_and_no_pandas(tmp_path: Path) -> None:
    code = (
        "import sys, commprof; analysis = commprof.analyze(sys.argv[1]); "
        "commprof.write_report(analysis, html=sys.argv[2]); print(sorted({'torch', 'pandas'} & set(sys.modules)))"
    )
    fixture = str(ROOT / "fixtures" / "ddp-two-ranks")

    run = subprocess.run(
        [sys.executable, "-c", code, fixture, str(tmp_path / "r.html")], capture_output=True, text=True, check=True
    )

    assert run.stdout.strip() == "[]"


def test_those_who_install_the_package_get_its_types() -> None:
    assert (PACKAGE / "py.typed").is_file()


def test_everything_public_can_be_reached_and_is_described() -> None:
    import commprof

    for name in commprof.__all__:
        value = getattr(commprof, name)
        assert name == "__version__" or (value.__doc__ or "").strip(), name
    with pytest.raises(AttributeError):
        _ = commprof.nothing_of_that_name


def test_no_text_of_the_repository_names_the_machine_it_was_written_on() -> None:
    place = re.compile(r"(?<![\w.])/(?:work|tmp/w)/")
    found = [
        str(path.relative_to(ROOT))
        for folder in ("commprof", "tests", "fixtures", "reports")
        for path in (ROOT / folder).rglob("*")
        if path.suffix in (".py", ".md", ".html", ".json", ".js", ".css")
        and path.is_file()
        and path != Path(__file__)
        and place.search(path.read_text(encoding="utf-8", errors="replace"))
    ]

    assert found == []
