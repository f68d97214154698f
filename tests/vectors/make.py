#!/usr/bin/env python3
"""Writes the test vectors beside it: `python3 tests/vectors/make.py`.

The vectors fix the formats on the wire: positions, idempotency keys, record keys, canonical JSON and
the hashes made of it. They are in the logs of everybody who runs Turnmill, so a vector never changes:
new ones may be added, and another expectation needs another format version with files of its own.

Nothing here comes from Turnmill's own output. Positions, keys and canonical texts are written by hand
or by Python's percent-encoding; hashes are hashlib's; the transcripts are written out message by
message. Standard library only.
"""

import hashlib
import json
import pathlib
from urllib.parse import quote

FORMAT = 1


def sha256(text):
    return hashlib.sha256(text.encode("utf-8")).hexdigest()


def dumps(value):
    """Canonical JSON of what has no numbers but small integers; Python sorts text by code point."""
    return json.dumps(value, ensure_ascii=False, sort_keys=True, separators=(",", ":"))


# Positions: how one is made, and the text.

def name(text):
    """The alphabet of an id inside a position: A-Z a-z 0-9 . _ - ~; above 200 bytes its hash."""
    return quote(text, safe="") if len(text.encode("utf-8")) <= 200 else "sha256:" + sha256(text)


AWKWARD = ["a/b", "a#0", "100%", "a b", "ü", "a\0b", "a:b", "a@b", "a=b", "日本", "😀", "%2F", "m0.c0",
           "A-z_0.9~", "a'\"\\b", "\x7f\t\n", "", "x" * 200, "x" * 201, "ü" * 100, "ü" * 101, "sha256:ab"]


def positions():
    by_hand = [
        ({"reply": 0}, "m0"),
        ({"reply": 12}, "m12"),
        ({"reply": 4294967295}, "m4294967295"),
        ({"call": [0, 0]}, "m0.c0"),
        ({"call": [3, 11]}, "m3.c11"),
        ({"direct": ["refund", 0]}, "refund#0"),
        ({"direct": ["a_tool-name", 7]}, "a_tool-name#7"),
        ({"direct_with_id": ["refund", "order-9"]}, "refund#id=order-9"),
        ({"direct_with_id": ["refund", "a/b#0"]}, "refund#id=a%2Fb%230"),
        ({"direct_with_id": ["refund", "0"]}, "refund#id=0"),
        ({"step": "charge"}, "step:charge"),
        ({"step": "50% off / ü#\0"}, "step:50%25%20off%20%2F%20%C3%BC%23%00"),
        ({"once": "greet"}, "once:greet"),
        ({"once": "once:greet"}, "once:once%3Agreet"),
        ({"approval": ["refund", 0]}, "tool_approval:refund#0"),
        ({"approval": ["refund", 3]}, "tool_approval:refund#3"),
        ({"approval_with_id": ["refund", "order-9"]}, "tool_approval:refund#id=order-9"),
        # What code is given by the runtime: no id of its own can stand there.
        ({"value": ["now", 0]}, "step:now#0"),
        ({"value": ["uuid", 11]}, "step:uuid#11"),
        ({"step": "now#0"}, "step:now%230"),
        ({"child": [{"call": [0, 1]}, {"direct": ["lookup", 0]}]}, "m0.c1/lookup#0"),
        ({"child": [{"direct": ["helper", 0]}, {"reply": 0}]}, "helper#0/m0"),
        ({"child": [{"child": [{"call": [0, 0]}, {"call": [2, 5]}]}, {"step": "a/b"}]},
         "m0.c0/m2.c5/step:a%2Fb"),
        ({"child": [{"call": [0, 0]}, {"child": [{"call": [2, 5]}, {"step": "a/b"}]}]},
         "m0.c0/m2.c5/step:a%2Fb"),
        ({"child": [{"direct_with_id": ["refund", "ü"]}, {"approval": ["pay", 0]}]},
         "refund#id=%C3%BC/tool_approval:pay#0"),
    ]
    encoded = []
    for text in AWKWARD:
        encoded += [
            ({"direct": [text, 0]}, f"{name(text)}#0"),
            ({"direct_with_id": ["t", text]}, f"t#id={name(text)}"),
            ({"step": text}, f"step:{name(text)}"),
            ({"once": text}, f"once:{name(text)}"),
            ({"approval": [text, 0]}, f"tool_approval:{name(text)}#0"),
            ({"approval_with_id": ["t", text]}, f"tool_approval:t#id={name(text)}"),
        ]
    return [{"make": make, "position": text} for make, text in by_hand + encoded]


# Idempotency keys: session, turn, position (none: the turn itself), and the key.

def session(text):
    """The alphabet of a session id inside a key: that of positions, and the colon."""
    return quote(text, safe=":")


def key(session_id, turn_id, position):
    parts = [session(session_id), turn_id] + ([position] if position else [])
    full = "/".join(parts)
    return full if len(full) <= 255 else "sha256:" + sha256(full)


def keys():
    def vector(session_id, turn_id, position, make, expected=None):
        made = key(session_id, turn_id, position)
        assert expected in (None, made), (expected, made)
        return {"session": session_id, "turn": turn_id, "make": make, "key": made}

    m0c0 = ("m0.c0", {"call": [0, 0]})
    found = [
        vector("s-1", "t-1", *m0c0, "s-1/t-1/m0.c0"),
        vector("s-1", "t-1", "m0", {"reply": 0}, "s-1/t-1/m0"),
        vector("s-1", "t-1", None, None, "s-1/t-1"),
        vector("a/b", "t", *m0c0, "a%2Fb/t/m0.c0"),
        vector("a", "b", "t#0", {"direct": ["t", 0]}, "a/b/t#0"),
        vector("tenant:7", "topic:3:42", *m0c0, "tenant:7/topic:3:42/m0.c0"),
        vector("käse & brot@home", "t", *m0c0, "k%C3%A4se%20%26%20brot%40home/t/m0.c0"),
        vector("😀\0\r\n", "t", *m0c0, "%F0%9F%98%80%00%0D%0A/t/m0.c0"),
        vector("100%", "t", "step:100%25", {"step": "100%"}, "100%25/t/step:100%25"),
        vector("sha256:ab", "t", None, None, "sha256:ab/t"),
        vector("s", "t" * 128, *m0c0),
    ]
    # The bound, in bytes of the encoded key: 255 is a key, 256 a hash.
    tail = "/t/m0.c0"
    for length in [254, 255, 256, 300]:
        found.append(vector("s" * (length - len(tail)), "t", *m0c0))
    # One byte of text that takes three in the key.
    found.append(vector("s" * (252 - len(tail)) + "#", "t", *m0c0))
    found.append(vector("s" * (253 - len(tail)) + "#", "t", *m0c0))
    for length in [255, 256]:
        found.append(vector("s" * (length - len("/t")), "t", None, None))
    found.append(vector("k" * 249, "t", "m0", {"reply": 0}))
    found.append(vector("ü" * 100_0, "t-9", "m1.c2", {"call": [1, 2]}))
    lengths = [len(v["key"]) for v in found]
    assert 255 in lengths and max(lengths) == 255 and sum(v["key"].startswith("sha256:") for v in found) >= 5
    return found


# Canonical JSON: a text, its canonical form, and the hash of that.

CANONICAL = [
    ("white space", ' \t\r\n{ "b" :\n[ 1 ,\t2 ] ,\r"a" : { } } \n', '{"a":{},"b":[1,2]}'),
    ("white space inside text stays", '{"a":"  x\\t y "}', '{"a":"  x\\t y "}'),
    ("keys are sorted", '{"b":1,"a":2,"B":3,"1":4,"":5,"ab":6}', '{"":5,"1":4,"B":3,"a":2,"ab":6,"b":1}'),
    ("keys are sorted at every level", '[{"z":{"y":1,"x":[{"w":1,"v":2}]}}]', '[{"z":{"x":[{"v":2,"w":1}],"y":1}}]'),
    ("keys are sorted by code point, where UTF-16 would put U+1F600 before U+FF5E",
     '{"😀":1,"～":2,"z":3,"é":4}', '{"z":3,"é":4,"～":2,"😀":1}'),
    ("a key is sorted by what it means, not by how it is escaped",
     '{"\\ud83d\\ude00":1,"\\uff5e":2,"\\u007a":3}', '{"z":3,"～":2,"😀":1}'),
    ("of a key that comes twice the last counts", '{"a":1,"b":2,"a":3}', '{"a":3,"b":2}'),
    ("a key that comes twice, once escaped", '{"a":1,"\\u0061":{"x":[]}}', '{"a":{"x":[]}}'),
    ("1", "1", "1"),
    ("1.0 is not 1", "1.0", "1.0"),
    ("1e0 is not 1", "1e0", "1e0"),
    ("1E+00 is not 1e0", "1E+00", "1E+00"),
    ("2^53 + 1", "9007199254740993", "9007199254740993"),
    ("2^64", "18446744073709551616", "18446744073709551616"),
    ("an integer of 40 digits", "-1234567890123456789012345678901234567890",
     "-1234567890123456789012345678901234567890"),
    ("a long decimal", "3.141592653589793238462643383279502884197", "3.141592653589793238462643383279502884197"),
    ("a number beyond every float", "1e999", "1e999"),
    ("-0", "-0", "-0"),
    ("-0.0", "-0.0", "-0.0"),
    ("trailing zeros", "0.10", "0.10"),
    ("numbers inside", '{"b":[1.0,1,1e2],"a":-0}', '{"a":-0,"b":[1.0,1,1e2]}'),
    ("true, false, null", "[true,false,null]", "[true,false,null]"),
    ("empty containers", '{"a":[],"b":{},"c":[[],{}],"d":""}', '{"a":[],"b":{},"c":[[],{}],"d":""}'),
    ("an empty array with room", "[ \n ]", "[]"),
    ("an empty object with room", "{ \n }", "{}"),
    ("short escapes", '"\\" \\\\ \\/ \\b \\f \\n \\r \\t"', '"\\" \\\\ / \\b \\f \\n \\r \\t"'),
    ("escapes that need not be", '"\\u0041\\u00fc\\u20AC\\/"', '"Aü€/"'),
    ("control characters, NUL too", '"\\u0000\\u0001\\u001F\\u000A\\u0008"', '"\\u0000\\u0001\\u001f\\n\\b"'),
    ("what stays as it is", '"\\u007f\\u2028\\u2029\\ufeff"', '"\x7f\u2028\u2029\ufeff"'),
    ("a surrogate pair", '"\\ud83d\\ude00"', '"😀"'),
    ("a surrogate pair in upper case", '"\\uD834\\uDD1E"', '"𝄞"'),
    ("text is not normalized", '["é","e\u0301"]', '["é","e\u0301"]'),
    ("text", '"plain"', '"plain"'),
    ("a call's arguments", '{ "order_id": "A-7", "lines": [ {"sku": "x", "n": 2.50} ] }',
     '{"lines":[{"n":2.50,"sku":"x"}],"order_id":"A-7"}'),
]

# What has no canonical form.
REFUSED = ["", " ", "{", "[1,]", '{"a":1,}', "{'a':1}", "{a:1}", "nul", "NaN", "Infinity", "01", "1.", ".5", "+1",
           "1 2", '{"a":1}{"a":2}', '"\\ud83d"', '"\\ude00\\ud83d"', '{"\\ud800":1}', '"\\x"', '"a\nb"', '"open',
           "\ufeff1", "// c\n1"]


def canonical():
    good = []
    for title, text, expected in CANONICAL:
        # The expectation is written by hand; Python agrees that it means the same, number text kept.
        read = lambda t: json.loads(t, parse_float=lambda n: ["number", n], parse_int=lambda n: ["number", n])
        assert read(text) == read(expected), title
        good.append({"title": title, "json": text, "canonical": expected, "sha256": sha256(expected)})
    return {"canonical": good, "refused": REFUSED}


# Transcripts: what the engine is given, the messages it should have then, and the hashes.

def chain(messages):
    """The rolling hash: of `[HASH SO FAR, MESSAGE]`, from the hash of no bytes."""
    so_far = sha256("")
    for message in messages:
        so_far = sha256(dumps([so_far, message]))
    return so_far


def definition(tool):
    return sha256(dumps({k: tool[k] for k in ("name", "description", "parameters")}))


def call_input(call_name, tool, arguments=None, raw=None):
    """`{"arguments":CANONICAL,"name":..,"tool":HASH}`; what does not parse goes as `arguments_raw`."""
    members = []
    if arguments is not None:
        members.append('"arguments":' + arguments)
    if raw is not None:
        members.append('"arguments_raw":' + dumps(raw))
    members.append('"name":' + dumps(call_name))
    if tool is not None:
        members.append('"tool":' + dumps(definition(tool)))
    return sha256("{" + ",".join(members) + "}")


ECHO = {"name": "echo", "description": "Return the text as it is.",
        "parameters": {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}}
PAY = {"name": "pay", "description": "Pay — “now” 😀\n",
       "parameters": {"type": "object", "properties": {"～": {}, "😀": {"minimum": 1}}, "additionalProperties": False}}


def user(text):
    return {"role": "user", "content": text}


def assistant(text=None, *calls):
    message = {"role": "assistant"}
    if text is not None:
        message["content"] = text
    if calls:
        message["tool_calls"] = [dict(zip(("id", "name", "arguments"), call)) for call in calls]
    return message


def answer(call_id, tool, text, is_error=False):
    message = {"role": "tool", "tool_call_id": call_id, "name": tool, "content": text}
    if is_error:
        message["is_error"] = True
    return message


def transcript(title, system, given, tools, steps):
    """Each step: a reply, the message it becomes, its calls with their inputs, and for each call what came
    of it with the message that becomes of that."""
    messages = ([{"role": "system", "content": system}] if system is not None else []) + list(given)
    vector = {"title": title, "system": system, "input": given, "tools": tools,
              "definitions": [definition(tool) for tool in tools], "steps": []}
    for reply, said, calls in steps:
        step = {"input": chain(messages), "reply": reply, "calls": []}
        messages.append(said)
        for position, input_hash, result, message in calls:
            step["calls"].append({"position": position, "input": input_hash, "result": result})
        messages += [message for *_, message in calls]
        vector["steps"].append(step)
    vector["messages"] = messages
    vector["end"] = chain(messages)
    return vector


def transcripts():
    raw = ' {"text" : "hi\\u0000", "n": 1.0} '
    canon = '{"n":1.0,"text":"hi\\u0000"}'
    long = "x" * 70
    return [
        transcript("no instructions, one message", None, [user("hi")], [], [
            ({"text": "hello"}, assistant("hello"), []),
        ]),
        transcript("instructions, empty reply", "You help with orders.", [user("")], [ECHO], [
            ({}, assistant(), []),
        ]),
        transcript("a conversation as input", "Käse 😀 ～", [
            user("one"),
            assistant("two", ("p1", "echo", '{"text":"x"}')),
            answer("p1", "echo", "x"),
            {"role": "system", "content": "three"},
            user("four\n\t\"\\/\u2028"),
        ], [], [
            ({"text": "five", "usage": {"input_tokens": 10, "output_tokens": 2}}, assistant("five"), []),
        ]),
        transcript("calls with the provider's ids", "s", [user("go")], [ECHO, PAY], [
            ({"text": "calling", "stop_reason": "tool_use",
              "calls": [{"id": "x1", "name": "echo", "arguments": raw}, {"id": "x2", "name": "pay", "arguments": "{}"}]},
             assistant("calling", ("x1", "echo", raw), ("x2", "pay", "{}")),
             [("m0.c0", call_input("echo", ECHO, arguments=canon), {"output": '"hi\\u0000"'},
               answer("x1", "echo", "hi\0")),
              ("m0.c1", call_input("pay", PAY, arguments="{}"), {"output": '{"a":[1.0,null],"paid":true}'},
               answer("x2", "pay", '{"a":[1.0,null],"paid":true}'))]),
            ({"text": "done"}, assistant("done"), []),
        ]),
        transcript("arguments that are nothing are the empty object", "s", [user("go")], [PAY], [
            ({"calls": [{"id": str(n), "name": "pay", "arguments": text} for n, text in
                        enumerate(["", "null", " {} "])]},
             assistant(None, ("0", "pay", ""), ("1", "pay", "null"), ("2", "pay", " {} ")),
             [(f"m0.c{n}", call_input("pay", PAY, arguments="{}"), {"output": "null"},
               answer(str(n), "pay", "null")) for n in range(3)]),
        ]),
        transcript("the last of a key that comes twice, keys by code point, number text kept", "s", [user("go")],
                   [PAY], [
            ({"calls": [{"id": "a", "name": "pay", "arguments": '{"😀":1,"～":18446744073709551616,"😀":1e0}'}]},
             assistant(None, ("a", "pay", '{"😀":1,"～":18446744073709551616,"😀":1e0}')),
             [("m0.c0", call_input("pay", PAY, arguments='{"～":18446744073709551616,"😀":1e0}'), {"output": "7"},
               answer("a", "pay", "7"))]),
        ]),
        transcript("what must not run: unknown, empty name, arguments that are no object", "s", [user("go")],
                   [ECHO, PAY], [
            ({"calls": [{"name": long, "arguments": "{}"}, {"name": "", "arguments": ""},
                        {"name": "echo", "arguments": '{"{"'}, {"name": "pay", "arguments": "[1]"}]},
             assistant(None, ("m0.c0", long, "{}"), ("m0.c1", "", ""), ("m0.c2", "echo", '{"{"'),
                       ("m0.c3", "pay", "[1]")),
             [("m0.c0", call_input(long, None, raw="{}"), {"error": ["unknown_tool", "no such tool"]},
               answer("m0.c0", long, "no such tool", True)),
              ("m0.c1", call_input("", None, raw=""), {"error": ["unknown_tool", "no name"]},
               answer("m0.c1", "", "no name", True)),
              ("m0.c2", call_input("echo", ECHO, raw='{"{"'), {"error": ["invalid_arguments", "bad"]},
               answer("m0.c2", "echo", "bad", True)),
              ("m0.c3", call_input("pay", PAY, raw="[1]"), {"error": ["invalid_arguments", "an array"]},
               answer("m0.c3", "pay", "an array", True))]),
        ]),
        transcript("a reply that was cut off runs nothing", None, [user("go")], [ECHO], [
            ({"stop_reason": "max_tokens", "calls": [{"id": "a", "name": "echo", "arguments": '{"text":"x"}'}]},
             assistant(None, ("a", "echo", '{"text":"x"}')),
             [("m0.c0", call_input("echo", ECHO, raw='{"text":"x"}'), {"error": ["reply_truncated", "cut"]},
               answer("a", "echo", "cut", True))]),
        ]),
        transcript("ids that are missing, empty or used before are replaced", None, [user("go")], [ECHO], [
            ({"calls": [{"id": "x", "name": "echo", "arguments": "{}"}, {"id": "x", "name": "echo", "arguments": "{}"},
                        {"id": "", "name": "echo", "arguments": "{}"}]},
             assistant(None, ("x", "echo", "{}"), ("m0.c1", "echo", "{}"), ("m0.c2", "echo", "{}")),
             [(f"m0.c{n}", call_input("echo", ECHO, arguments="{}"), {"output": f'"{n}"'},
               answer(call_id, "echo", str(n))) for n, call_id in enumerate(["x", "m0.c1", "m0.c2"])]),
            ({"calls": [{"id": "x", "name": "echo", "arguments": "{}"}, {"id": "m0.c1", "name": "echo", "arguments": ""}]},
             assistant(None, ("m1.c0", "echo", "{}"), ("m1.c1", "echo", "")),
             [(f"m1.c{n}", call_input("echo", ECHO, arguments="{}"), {"output": "0"},
               answer(f"m1.c{n}", "echo", "0")) for n in range(2)]),
            ({"text": ""}, assistant(""), []),
        ]),
    ]


# The keys of the journal's records: an event, and the key that compaction knows it by.

def record_keys():
    def event(kind, expected, **fields):
        return {"event": {"type": kind, **fields}, "key": expected}

    ids = {"session_id": "s 1", "turn_id": "t-1", "fence": 42}
    step = {**ids, "position": "m0.c1", "idempotency_key": "s%201/t-1/m0.c1"}
    claim = {"nonce": "5e0c9a4e-0001", "group": "g", "turns_topic": "agent.turns", "member": "w"}
    long = {"session_id": "s" * 254, "turn_id": "t", "fence": 7}
    hashed = "sha256:" + sha256("s" * 254 + "/t")
    return [
        event("claim", "claim@5e0c9a4e-0001", claim=claim),
        event("turn:start", "s%201/t-1/turn:start@42", **ids),
        event("model:reply", "s%201/t-1/m0@42", **{**step, "position": "m0", "idempotency_key": "s%201/t-1/m0"}),
        event("tool:start", "s%201/t-1/m0.c1@42", **step),
        event("tool:result", "s%201/t-1/m0.c1@42", **step),
        event("tool:result", "s%201/t-1/m0.c1@43", **{**step, "fence": 43}),
        event("turn:output", "s%201/t-1/turn:output@42", **ids),
        event("turn:end", "s%201/t-1@42", **ids),
        event("turn:end", "s%201/agent.turns:3:9@42", **{**ids, "turn_id": "agent.turns:3:9", "turn_status": "dead_letter"}),
        event("turn:end", f"{hashed}@7", **long),
        event("turn:start", f"{hashed}/turn:start@7", **long),
        event("step", "s%201/t-1/step:charge@42", **ids, position="step:charge",
              idempotency_key="s%201/t-1/step:charge"),
        event("tool:start", "sha256:ab@7", **{**long, "position": "m0.c0", "idempotency_key": "sha256:ab"}),
    ]


# Steps of an agent's own: where one stands in its agent, and the hash of its input.

def steps():
    places = [({"step": "charge"}, "step:charge"), ({"once": "greet"}, "once:greet"), ({"step": "a/b ü"}, "step:a%2Fb%20%C3%BC"),
              ({"value": ["now", 0]}, "step:now#0")]
    return [{"make": make, "input": sha256(dumps({"step": place}))} for make, place in places]


def write(file, **content):
    path = pathlib.Path(__file__).with_name(file)
    text = json.dumps({"format": FORMAT, **content}, indent=1, ensure_ascii=True)
    path.write_text(text + "\n", encoding="ascii")
    print(path.name, len(text))


if __name__ == "__main__":
    write("positions.json", positions=positions())
    write("keys.json", keys=keys())
    write("canonical.json", **canonical())
    write("transcripts.json", transcripts=transcripts())
    write("record_keys.json", record_keys=record_keys())
    write("steps.json", steps=steps())
