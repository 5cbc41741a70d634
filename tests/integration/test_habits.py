"""Completion and the manual page: made from the parser's own description, so that they cannot fall behind."""
import os
import pathlib
import shutil
import subprocess

import pytest

BIN = pathlib.Path(os.environ.get("COFFERDAM_BIN", "build/dev/bin")).resolve()


def printed(kind):
    return subprocess.run([BIN / "cofferdam", "completion", kind], check=True, capture_output=True, text=True).stdout


def commands():
    shown = subprocess.run([BIN / "cofferdam", "--help"], check=True, capture_output=True, text=True).stdout
    lines = shown.split("Subcommands:")[1].splitlines()
    return {line.split()[0] for line in lines if line.startswith("  ") and line[2] != " "}


def completed(*words):
    """What bash offers for the last word."""
    script = f"""
source /dev/stdin <<'COMPLETION'
{printed("bash")}COMPLETION
cofferdam() {{ "{BIN}/cofferdam" "$@"; }}
COMP_WORDS=({" ".join("'" + w + "'" for w in words)})
COMP_CWORD={len(words) - 1}
_cofferdam
printf '%s\\n' "${{COMPREPLY[@]}}"
"""
    done = subprocess.run(["bash", "--norc"], input=script, capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def test_bash_completes_commands_options_and_values():
    assert commands() <= completed("cofferdam", "")
    assert completed("cofferdam", "ver") >= {"verify"}
    assert {"--detach", "-d", "--timeout", "--workspace"} <= completed("cofferdam", "run", "-")
    assert completed("cofferdam", "run", "--engine", "") == {"native", "docker"}
    assert completed("cofferdam", "run", "--engine", "d") == {"docker"}
    assert completed("cofferdam", "run", "--", "--wor") == set(), "the workload's words are its own"


@pytest.mark.parametrize("kind", ["bash", "zsh", "fish", "man"])
def test_every_command_and_option_is_in_each(kind):
    text = printed(kind).replace("\\-", "-")
    for command in commands():
        assert command in text
    for option in ("detach", "strict-reads", "older", "engine"):
        assert option in text
    shell = shutil.which(kind)
    if shell:
        subprocess.run([shell, "-n"], input=printed(kind), text=True, check=True) if kind != "man" else None


def test_the_manual_page_is_wellformed():
    text = printed("man")
    assert text.startswith(".TH COFFERDAM 1\n") and ".SH EXIT STATUS" in text
    # No line of running text may begin with a control character of man(7).
    known = (".TH", ".SH", ".SS", ".TP", ".B", ".I")
    assert [line for line in text.splitlines() if line[:1] in (".", "'") and not line.startswith(known)] == []


# --- what --json prints has a schema

SCHEMAS = pathlib.Path(__file__).resolve().parents[2] / "policies/schema"
TYPES = {"object": dict, "array": list, "string": str, "boolean": bool, "integer": int, "null": type(None)}


def faults(value, schema, where="$"):
    """The part of JSON Schema that ours use."""
    found = []
    if "enum" in schema and value not in schema["enum"]:
        return [f"{where}: {value!r} is none of {schema['enum']}"]
    if "type" in schema:
        wanted = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
        if not any(isinstance(value, TYPES[name]) and not (name == "integer" and isinstance(value, bool)) for name in wanted):
            return [f"{where}: {value!r} is no {wanted}"]
    if isinstance(value, dict) and "properties" in schema:
        found += [f"{where}: no {key}" for key in schema["required"] if key not in value]
        for key, item in value.items():
            if key in schema["properties"]:
                found += faults(item, schema["properties"][key], f"{where}.{key}")
            elif not schema.get("additionalProperties", True):
                found.append(f"{where}: {key} is not in the schema")
    if isinstance(value, list) and "items" in schema:
        for number, item in enumerate(value):
            found += faults(item, schema["items"], f"{where}[{number}]")
    return found


def test_the_checker_can_fail():
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"], "additionalProperties": False}
    assert faults({"a": 1}, schema) == []
    assert all(faults(value, schema) for value in ({}, {"a": "1"}, {"a": 1, "b": 2}, [], {"a": True}))


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to switch users, and to see every namespace")
def test_what_is_printed_as_json_is_as_its_schema_says(tmp_path):
    import json
    import sandbox_runs
    runner = sandbox_runs.Runner()
    try:
        def answer(*words):
            done = subprocess.run([BIN / "cofferdam", *words], cwd=runner.workspace, capture_output=True, check=True, timeout=300,
                                  stdin=subprocess.DEVNULL, env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": str(runner.home)})
            return json.loads(done.stdout)

        def schema(name):
            return json.loads((SCHEMAS / name).read_text())
        detached = answer("run", "-d", "--json")
        assert faults(detached, schema("detached.json")) == []
        assert faults(answer("ps", "--json"), schema("ps.json")) == []
        running = answer("top", "--json")
        assert faults(running, schema("top.json")) == [] and len(running["sandboxes"]) == 1
        subprocess.run([BIN / "cofferdam", "stop", detached["sandbox"]], check=True, capture_output=True, cwd=runner.workspace,
                       env={"PATH": "/usr/bin", "HOME": str(runner.home)})
        assert faults(answer("ps", "--json"), schema("ps.json")) == []
        assert faults(answer("top", "--all", "--json"), schema("top.json")) == []
        assert faults(answer("prune", "--json"), schema("prune.json")) == []
    finally:
        runner.close()
