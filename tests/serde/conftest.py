"""The published JSON Schema."""

import json
from pathlib import Path

import jsonschema
import pytest


@pytest.fixture(scope="session")
def schema():
    text = (Path(__file__).parents[2] / "docs/ir.schema.json").read_text()
    return jsonschema.Draft202012Validator(json.loads(text))
