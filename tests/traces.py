"""The rules of every trace file, and the values that the tests read from one."""

import json
from collections import defaultdict
from numbers import Real

# Rounding of microseconds in floating point.
NEAR = 1e-3


def read(path):
    """The file's document, after a check of every event."""
    document = json.loads(path.read_text())
    assert set(document) == {"traceEvents", "displayTimeUnit", "otherData"}
    events = document["traceEvents"]
    named = set()
    for event in events:
        assert isinstance(event["name"], str)
        assert event["name"]
        assert isinstance(event["pid"], int)
        if event["ph"] == "M":
            assert event["name"] in ("process_name", "thread_name")
            assert isinstance(event["args"]["name"], str)
            named.add((event["name"], event["pid"], event["tid"]))
            continue
        assert isinstance(event["ts"], Real)
        assert event["ts"] >= 0
        if event["ph"] == "C":
            assert event["args"]
            assert all(isinstance(value, int) for value in event["args"].values())
            continue
        assert event["ph"] == "X", event
        assert isinstance(event["dur"], Real)
        assert event["dur"] >= 0
        assert isinstance(event["tid"], int)
        assert isinstance(event["args"], dict)
        assert ("process_name", event["pid"], 0) in named
        assert ("thread_name", event["pid"], event["tid"]) in named
    check_nesting([event for event in events if event["ph"] == "X"])
    return document


def check_nesting(spans):
    """On each track a span lies within the one around it, or behind the one before it."""
    tracks = defaultdict(list)
    for span in spans:
        tracks[span["pid"], span["tid"]].append(span)
    for track in tracks.values():
        around = []
        for span in track:
            start, end = span["ts"], span["ts"] + span["dur"]
            while around and around[-1][1] <= start + NEAR:
                around.pop()
            if around:
                assert around[-1][0] - NEAR <= start, (around[-1], span)
                assert end <= around[-1][1] + NEAR, (around[-1], span)
            around.append((start, end, span["name"]))


def spans(document, kind, name=None):
    """The spans of one kind, in order of time."""
    results = [e for e in document["traceEvents"] if e["ph"] == "X" and e["cat"] == kind]
    return [item for item in results if name in (None, item["name"])]


def counters(document):
    """The states of the counters, in order of time."""
    return [e["args"] for e in document["traceEvents"] if e["ph"] == "C"]


def within(inner, outer):
    """Returns whether a span lies in another one."""
    ends = inner["ts"] + inner["dur"], outer["ts"] + outer["dur"]
    return outer["ts"] - NEAR <= inner["ts"] and ends[0] <= ends[1] + NEAR
