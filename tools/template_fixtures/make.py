#!/usr/bin/env python3
"""Renders real chat templates over many conversations with jinja2 and writes the hashes of the results.

Needs jinja2 and the templates of tools/fetch_templates.py. Writes chat_settings.json, chat_cases_N.json (the
conversations) and chat_hashes_N.json (for each template a hash per conversation, "-" where it refuses the conversation) into
tests/text/fixtures.
"""
import json
import os
import random
import datetime

import jinja2
import jinja2.ext
import jinja2.nodes
import jinja2.sandbox

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
TEMPLATES = os.path.join(ROOT, "build", "assets", "templates")
FIXTURES = os.path.join(ROOT, "tests", "text", "fixtures")
NOW = 1768478400  # noon, UTC
TOKENS = {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>", "unk_token": "<unk>"}
TEMPLATES_PER_FILE = 30
CASES_PER_FILE = 15

WEATHER = {"type": "function", "function": {
    "name": "get_weather", "description": "Weather of a \"city\" – today's",
    "parameters": {"type": "object", "required": ["city"], "properties": {
        "city": {"type": "string", "description": "Name, e.g. Köln <&>"},
        "days": {"type": "integer", "default": 1, "enum": [1, 2, 3]},
        "unit": {"type": ["string", "null"], "enum": ["c", "f"]},
        "where": {"type": "object", "properties": {"lat": {"type": "number"}}},
        "tags": {"type": "array", "items": {"type": "string"}}}},
    "return": {"type": "string", "description": "text"}}}
CLOCK = {"type": "function", "function": {
    "name": "clock", "description": "", "parameters": {"type": "object", "properties": {}}}}


class Generation(jinja2.ext.Extension):
    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("_run"), [], [], body).set_lineno(line)

    def _run(self, caller):
        return caller()


def refuse(message):
    raise jinja2.TemplateError(message)


def to_json(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def environment():
    env = jinja2.sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols])
    env.filters["tojson"] = to_json
    env.globals["raise_exception"] = refuse
    env.globals["strftime_now"] = lambda f: datetime.datetime.fromtimestamp(NOW).strftime(f)
    return env


def render(template, case):
    try:
        return template.render(messages=case["messages"], tools=case.get("tools"), documents=None,
                               add_generation_prompt=case.get("prompt", False), **TOKENS, **case.get("variables", {}))
    except Exception:  # whatever the template or Python objects to
        return None


def user(text):
    return {"role": "user", "content": text}


def assistant(text, **more):
    return {"role": "assistant", "content": text, **more}


def system(text):
    return {"role": "system", "content": text}


def call(name, arguments, number=1):
    return {"id": f"call{number:05}", "type": "function", "function": {"name": name, "arguments": arguments}}


def result(text, number=1, name="get_weather"):
    return {"role": "tool", "tool_call_id": f"call{number:05}", "name": name, "content": text}


ODD = "  Tab\tquote \" ' back\\slash\n\nnew {{ x }} {% y %} <&> "
CHINESE = "你好，世界！ é e\u0301 😀👩‍👩‍👧 \u00a0\u3000"


def fixed_cases():
    chat = [user("Hi"), assistant("Hello."), user("And now?")]
    with_call = [user("Weather in Köln?"),
                 assistant("", tool_calls=[call("get_weather", {"city": "Köln", "days": 2, "where": {"lat": 1.5}})]),
                 result('{"sky": "grey", "t": [1, 2.5]}'), assistant("Grey.")]
    text_call = json.loads(json.dumps(with_call))
    text_call[1]["tool_calls"][0]["function"]["arguments"] = '{"city": "Köln"}'
    two_calls = [system("Be brief."), user("Both?"),
                 assistant(None, tool_calls=[call("get_weather", {"city": "A"}), call("clock", {}, 2)]),
                 result("wet", 1), result("noon", 2, "clock"), assistant("Wet, noon."), user("Thanks")]
    thought = [user("2+2?"), assistant("4", reasoning_content="Two and two.\nFour."), user("3+3?"),
               assistant("6", reasoning_content="Six.")]
    inline = [user("2+2?"), assistant("<think>\nEasy.\n</think>\n\n4"), user("Sure?"),
              assistant("<think>Check.</think> Yes.")]
    thinking_call = json.loads(json.dumps(with_call))
    thinking_call[1]["reasoning_content"] = "I need the tool."
    thinking_call[3]["reasoning_content"] = "Now I know."
    parts = [{"role": "user", "content": [{"type": "text", "text": "Part one."}, {"type": "text", "text": "Two."}]},
             assistant("Seen.")]
    yield {"messages": [user("Hi")]}
    yield {"messages": chat, "prompt": True}
    yield {"messages": [system("You are kind.")] + chat + [assistant("Later.")]}
    yield {"messages": [user(ODD), assistant(ODD), user(CHINESE), assistant(CHINESE)]}
    yield {"messages": [system(""), user(""), assistant("")]}
    yield {"messages": with_call, "tools": [WEATHER]}
    yield {"messages": text_call, "tools": [WEATHER, CLOCK]}
    yield {"messages": two_calls, "tools": [WEATHER, CLOCK], "prompt": True}
    yield {"messages": thought}
    yield {"messages": thought[:3], "prompt": True, "variables": {"enable_thinking": False}}
    yield {"messages": thought[:3], "prompt": True, "variables": {"enable_thinking": True, "thinking": True}}
    yield {"messages": inline}
    yield {"messages": thinking_call, "tools": [WEATHER], "variables": {"preserve_thinking": True}}
    yield {"messages": thinking_call[:3], "tools": [WEATHER], "prompt": True}
    yield {"messages": parts}
    yield {"messages": [assistant("I begin."), user("No, I.")], "prompt": True}
    yield {"messages": [user("One"), user("Two"), assistant("Three"), assistant("Four")]}
    yield {"messages": [{"role": "developer", "content": "Rules."}, user("Hi")], "prompt": True}
    yield {"messages": [system("Only me.")], "prompt": True}
    yield {"messages": []}
    yield {"messages": chat, "tools": [CLOCK], "prompt": True}
    yield {"messages": [system("Date?"), user("Hi"), assistant(" yo ")],
           "variables": {"date_string": "1 Jan 2026", "reasoning_effort": "high"}}


def random_cases(count):
    rng = random.Random(7)
    texts = ["ok", "A b\n c", " x ", "naïve 好", "`code`\n```py\nprint('a')\n```", "</think>", "[1] {2} #3", "\n\nend\n"]
    for _ in range(count):
        messages = [system(rng.choice(texts))] if rng.random() < 0.4 else []
        for _ in range(rng.randint(1, 4)):
            messages.append(user(rng.choice(texts)))
            if rng.random() < 0.3:
                messages.append(assistant(rng.choice(["", "Wait."]), tool_calls=[
                    call("get_weather", {"city": rng.choice(texts), "days": rng.randint(-2, 3)})]))
                messages.append(result(rng.choice(texts)))
            more = {"reasoning_content": rng.choice(texts)} if rng.random() < 0.3 else {}
            messages.append(assistant(rng.choice(texts), **more))
        if rng.random() < 0.5:
            messages.append(user(rng.choice(texts)))
        case = {"messages": messages, "prompt": rng.random() < 0.5}
        if rng.random() < 0.3:
            case["tools"] = [WEATHER]
        yield case


def fnv(data):
    value = 0xCBF29CE484222325
    for byte in data:
        value = (value ^ byte) * 0x100000001B3 & 0xFFFFFFFFFFFFFFFF
    return value


def load_templates():
    for folder, _, names in sorted(os.walk(TEMPLATES)):
        for name in sorted(names):
            if name.endswith(".jinja"):
                with open(os.path.join(folder, name), encoding="utf-8", newline="") as f:
                    yield os.path.relpath(os.path.join(folder, name), TEMPLATES), f.read()


def write(name, value):
    with open(os.path.join(FIXTURES, name), "w", encoding="utf-8") as f:
        f.write(value)
    assert os.path.getsize(os.path.join(FIXTURES, name)) <= 10_000, name


def main():
    # tools are named so that the file stays small
    cases = list(fixed_cases()) + list(random_cases(8))
    tools = {"weather": WEATHER, "clock": CLOCK}
    names = {json.dumps(tool): name for name, tool in tools.items()}
    stored = [{**case, **({"tools": [names[json.dumps(tool)] for tool in case["tools"]]} if "tools" in case else {})}
              for case in cases]
    write("chat_settings.json", json.dumps({"now": NOW, "tokens": TOKENS, "tools": tools}, ensure_ascii=False) + "\n")
    for i in range(0, len(stored), CASES_PER_FILE):
        lines = ",\n".join(json.dumps(case, ensure_ascii=False) for case in stored[i:i + CASES_PER_FILE])
        write(f"chat_cases_{i // CASES_PER_FILE}.json", f"[\n{lines}\n]\n")
    env = environment()
    rows = []
    for name, source in load_templates():
        try:
            template = env.from_string(source)
        except jinja2.TemplateError as error:
            print(f"{name}: {error}")
            continue
        texts = [render(template, case) for case in cases]
        hashes = ["-" if text is None else f"{fnv(text.encode()) & 0xFFFFFFFF:08x}" for text in texts]
        rows.append(f'"{name}": "{" ".join(hashes)}"')
    for i in range(0, len(rows), TEMPLATES_PER_FILE):
        write(f"chat_hashes_{i // TEMPLATES_PER_FILE}.json",
              "{\n" + ",\n".join(rows[i:i + TEMPLATES_PER_FILE]) + "\n}\n")
    print(f"{len(rows)} templates, {len(cases)} conversations")


if __name__ == "__main__":
    main()
