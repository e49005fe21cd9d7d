"""``commprof schema``: the printed schema is what reports keep to, in both directions (C219)."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from tests.builders.command import call, strict_json
from tests.conftest import ROOT

FIXTURES = sorted(path.name for path in (ROOT / "fixtures").iterdir() if (path / "truth.json").is_file())
SIMULATED = ("tp-pp-dp", "fsdp", "slow-gpu")


@pytest.fixture(scope="module")
def schema() -> dict[str, Any]:
    code, out, _ = call("schema")
    assert code == 0
    return strict_json(out.encode())


@pytest.fixture(scope="module")
def closed(schema: dict[str, Any]) -> dict[str, Any]:
    """The same schema, but a key that it does not name is an error."""
    strict = copy.deepcopy(schema)
    for definition in strict["$defs"].values():
        definition["additionalProperties"] = False
    return strict


def errors(schema: dict[str, Any], report: Any) -> list[str]:
    """What a report breaks, each with its place; of an alternative with null, what the other one says."""

    def leaves(error: jsonschema.ValidationError) -> Iterator[str]:
        inner = [each for each in error.context or () if each.validator != "type" or each.validator_value != "null"]
        if inner:
            for each in inner:
                yield from leaves(each)
        else:
            yield f"{error.json_path}: {error.message[-120:]}"

    found = jsonschema.Draft202012Validator(schema).iter_errors(report)
    return sorted({text for error in found for text in leaves(error)})


def report_of(source: Path, folder: Path) -> Any:
    target = folder / "report.json"
    assert call("analyze", source, "--no-html", "--json", target)[0] == 0
    return strict_json(target.read_bytes())


def test_the_schema_is_a_valid_schema_of_its_draft(schema: dict[str, Any]) -> None:
    jsonschema.Draft202012Validator.check_schema(schema)

    assert schema["$defs"]["Report"]["properties"]["schema"] == {"const": "commprof.report/1"}


@pytest.mark.parametrize("name", FIXTURES)
def test_c219_reports_of_the_fixtures_keep_to_the_schema(name: str, closed: dict[str, Any], tmp_path: Path) -> None:
    report = report_of(ROOT / "fixtures" / name, tmp_path)

    assert errors(closed, report) == []


@pytest.mark.parametrize("name", SIMULATED)
def test_c219_reports_of_simulated_runs_keep_to_the_schema(name: str, closed: dict[str, Any], tmp_path: Path) -> None:
    # Given runs with pipelines, sharded layers and a late rank, which the fixtures lack.
    assert call("synth", name, "-o", tmp_path / "run", "--steps", "2", "--no-calls")[0] == 0

    report = report_of(tmp_path / "run", tmp_path)

    assert errors(closed, report) == []


def test_every_key_of_the_schema_is_written(schema: dict[str, Any], tmp_path: Path) -> None:
    report = report_of(ROOT / "fixtures" / "ddp-two-ranks", tmp_path)

    missing = [f"{where}.{key}" for where, wanted, row in named(schema, report) for key in wanted - row.keys()]

    assert missing == []


def test_a_wrong_report_does_not_pass(schema: dict[str, Any], tmp_path: Path) -> None:
    report = report_of(ROOT / "fixtures" / "t0", tmp_path)
    report["ranks"][0]["whole"]["idle_ns"] = -1
    report["collectives"][0]["op"] = "all_reduce_like"
    report["verdict"].pop("summary")

    found = errors(schema, report)

    assert len(found) == 3, found


def named(schema: dict[str, Any], report: Any) -> Iterator[tuple[str, set[str], dict[str, Any]]]:
    """Every object of the report that the schema names, with the keys that it should have."""

    def walk(where: str, rule: dict[str, Any], value: Any) -> Iterator[tuple[str, set[str], dict[str, Any]]]:
        if "$ref" in rule:
            rule = schema["$defs"][rule["$ref"].rpartition("/")[2]]
        for choice in rule.get("anyOf", ()):
            if value is not None:
                yield from walk(where, choice, value)
        if isinstance(value, list) and "items" in rule:
            for item in value:
                yield from walk(f"{where}[]", rule["items"], item)
        if isinstance(value, dict) and "properties" in rule:
            yield where, set(rule["properties"]), value
            for key, inner in rule["properties"].items():
                if key in value:
                    yield from walk(f"{where}.{key}", inner, value[key])

    yield from walk("$", schema, json.loads(json.dumps(report)))
