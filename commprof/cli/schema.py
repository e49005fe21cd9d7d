"""``commprof schema``: the JSON Schema of the report."""

from __future__ import annotations


def schema() -> None:
    """Print the JSON Schema of the report that analyze and check write with --json.

    Example: commprof schema > report.schema.json
    """
    from commprof.cli.streams import print_json
    from commprof.report.contract import json_schema
    from commprof.report.view import SCHEMA
    from commprof.report.write import json_text

    print_json(json_text(json_schema(SCHEMA)))
