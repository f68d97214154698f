"""Feeds the function definitions and example calls of bfcl-eval to tests/fixtures/definitions.rs; see scripts/function-calling.

Another implementation of JSON Schema judges the same lines: the script fails where the two do not agree.
"""

import json
import re
import runpy
import subprocess
import sys
from collections import Counter
from pathlib import Path

from jsonschema import Draft202012Validator

LEFT_OUT = object()


def rows(path):
    """The objects of a file of JSON lines; none for a file that holds something else."""
    try:
        return [row for row in map(json.loads, filter(str.strip, path.open())) if isinstance(row, dict)]
    except json.JSONDecodeError:
        return []


def functions(path, row):
    if path.parent.name == "multi_turn_func_doc":
        return [row]
    found = row.get("function") or []
    return found if isinstance(found, list) else [found]


def pick(accepted, schema, required):
    """The first accepted value. An empty text among them says that the parameter may be left out, and so does a null
    beside it."""
    values = [value for value in accepted if value != "" and not (value is None and "" in accepted)]
    if values:
        return fill(values[0], schema)
    return "" if required else LEFT_OUT


def fill(value, schema):
    """Accepted values inside an accepted value: of the members of objects."""
    schema = schema if isinstance(schema, dict) else {}
    if isinstance(value, list):
        return [fill(item, schema.get("items")) for item in value]
    if not isinstance(value, dict):
        return value
    properties, required = schema.get("properties", {}), schema.get("required", [])
    filled = {}
    for name, accepted in value.items():
        if isinstance(accepted, list):
            accepted = pick(accepted, properties.get(name), name in required)
        else:
            accepted = fill(accepted, properties.get(name))
        if accepted is not LEFT_OUT:
            filled[name] = accepted
    return filled


def calls(truth, definitions, skipped, category):
    """(name, arguments) of an answer; what is text, a result, or nested by turns is counted and left out."""
    for call in truth if isinstance(truth, list) else [truth]:
        if isinstance(call, dict) and len(call) == 1 and next(iter(call)) in definitions:
            ((name, arguments),) = call.items()
            yield name, fill(arguments, definitions[name]["parameters"])
        else:
            skipped[category] += 1


def convert(schema, types):
    """The leaderboard's conversion (bfcl_eval/model_handler/utils.py), at every depth rather than the first few."""
    schema = dict(schema)
    schema["type"] = types.get(schema.get("type"), "string")
    if isinstance(schema.get("properties"), dict):
        schema["properties"] = {name: convert(of, types) for name, of in schema["properties"].items()}
    for keyword in ("items", "additionalProperties"):
        if isinstance(schema.get(keyword), dict):
            schema[keyword] = convert(schema[keyword], types)
    return schema


def collect(data):
    """Every definition with its example calls, and how many answers of which file are no such calls."""
    collected, skipped = [], Counter()
    for path in sorted(data.rglob("*.json")):
        beside = [folder / "possible_answer" / path.name for folder in path.parents[:2]]
        answers = {row["id"]: row["ground_truth"] for file in beside if file.exists() for row in rows(file)}
        for row in rows(path) if path not in beside else []:
            definitions = {function["name"]: function | {"calls": []} for function in functions(path, row)}
            collected += definitions.values()
            truth = answers.get(row.get("id"), [])
            for name, arguments in calls(truth, definitions, skipped, path.stem):
                definitions[name]["calls"].append(arguments)
    return collected, skipped


def converted(definition, types):
    name = definition["name"].replace(".", "_")
    return definition | {"name": name, "parameters": convert(definition["parameters"], types) | {"type": "object"}}


def place(schema, path):
    """The schema of a place in a value."""
    for step in path:
        if isinstance(step, int):
            schema = schema.get("items", {})
        else:
            schema = schema.get("properties", {}).get(step) or schema.get("additionalProperties") or {}
    return schema


def cause(error, written):
    """Why an example call does not hold, from the data itself."""
    if error.validator == "required":
        return "the answer has no value for a parameter that the definition requires"
    if error.validator == "enum":
        return "the answer is not among the values that the definition lists"
    if error.validator != "type":
        return f"the answer breaks the definition's {error.validator}"
    was = place(written, error.absolute_path).get("type", "no type")
    is_a = {str: "text", bool: "boolean", int: "integer", float: "number", list: "array", dict: "object"}
    got = is_a.get(type(error.instance), "null")
    if error.instance == "":
        return f"the answer leaves out what the definition requires, which is {was!r}"
    if error.validator_value != was and error.validator_value == "string":
        return f"the conversion makes {was!r} a string, and the answer is {got}"
    return f"the definition says {was!r}, and the answer is {got}"


def second_opinion(definitions, written):
    """The counts as the example prints them, and the cause of each call that does not hold."""
    accepted = hold = failed = 0
    causes = {}
    for definition, source in zip(definitions, written):
        schema = definition["parameters"]
        valid = Draft202012Validator(Draft202012Validator.META_SCHEMA).is_valid(schema)
        if not (valid and schema.get("type") == "object" and re.fullmatch(r"[a-zA-Z0-9_-]+", definition["name"])):
            continue
        accepted += 1
        for call in definition["calls"]:
            error = next(Draft202012Validator(schema).iter_errors(call), None)
            hold += error is None
            failed += error is not None
            if error:
                at = "/".join(map(str, error.absolute_path))
                count, _ = causes.get(key := cause(error, source["parameters"]), (0, None))
                causes[key] = count + 1, f"{definition['name']}: /{at}: {error.message}"
    return (accepted, len(definitions) - accepted, hold, failed), causes


def judge(program, definitions, written):
    lines = "".join(json.dumps(definition) + "\n" for definition in definitions)
    printed = subprocess.run([program], input=lines, capture_output=True, text=True)
    print(printed.stdout + printed.stderr, end="")
    if printed.returncode:
        sys.exit(f"function-calling: the program ended with {printed.returncode}")
    counts = re.search(r"(\d+) accepted, (\d+) refused[\s\S]*^calls: (\d+) hold, (\d+) do not", printed.stdout, re.M)
    theirs, causes = second_opinion(definitions, written)
    if tuple(map(int, counts.groups())) != theirs:
        sys.exit(f"function-calling: the second opinion differs: {theirs}")
    print("The second opinion is the same.")
    return causes


def main(package, program):
    types = runpy.run_path(str(package / "constants/type_mappings.py"))["GORILLA_TO_OPENAPI"]
    definitions, skipped = collect(package / "data")
    distinct = len({json.dumps([d["name"], d["description"], d["parameters"]]) for d in definitions})
    print(f"{len(definitions)} definitions, {distinct} different ones; {sum(len(d['calls']) for d in definitions)} calls.")
    print(f"{skipped.total()} answers are not lists of accepted values, and left out: {dict(skipped)}")
    print("\nAs they are written:")
    judge(program, definitions, definitions)
    print("\nAfter the leaderboard's conversion:")
    causes = judge(program, [converted(definition, types) for definition in definitions], definitions)
    print("\nWhy these calls do not hold, from the data:")
    for why, (count, example) in sorted(causes.items(), key=lambda item: -item[1][0]):
        print(f"  {count:>6}  {why}\n          such as {example[:220]}")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
