"""The shared parts of benchmarks of kernels: the rows asked for, errors in words, checks, tables in files."""

import json
import re
import time


def asked_for(rows, arguments):
    """The rows that ``--only`` and ``--quick`` choose."""
    pattern = re.compile(arguments.only)
    return [row for row in rows if pattern.search(row.name) and (row.quick or not arguments.quick)]


def failure(error):
    """Describes an error for a row; an error for lack of room on the adapter makes no row wrong."""
    import rlx

    kind = "" if isinstance(error, rlx.RlxError) else f"{type(error).__name__}: "
    text = kind + " ".join(str(error).split())[:300]
    if isinstance(error, rlx.DeviceMemoryError):
        return {"correct": True, "skipped": text}
    return {"correct": False, "failure": text}


def save(result, arguments):
    """Saves the known results, in case that the rest is cut off."""
    if arguments.json:
        arguments.json.write_text(json.dumps(result, indent=1, default=str))


def tell_checks(lines, began, arguments, console):
    """Says which lines are wrong, and how many are right; the exit status."""
    wrong = [line for line in lines if not line["correct"]]
    for line in wrong:
        said = line.get("failure") or f"error {line['error']:.2g}, at most {line['tolerance']:.2g}"
        console.print(f"WRONG {line['variant']} {line['row']} {line['size']}: {said}", markup=False)
    took = time.monotonic() - began
    skipped = sum("skipped" in line for line in lines)
    right = len(lines) - len(wrong) - skipped
    can = f", {skipped} can't run here" if skipped else ""
    console.print(f"{right} of {len(lines)} are right{can}, {took:.0f} s")
    save({"checks": lines}, arguments)
    return int(bool(wrong) or not right)


def markdown(headings, rows):
    """Lines of a table; the first column is left-aligned."""
    yield "| " + " | ".join(headings) + " |"
    yield "|---|" + "---|" * (len(headings) - 1)
    for cells in rows:
        yield "| " + " | ".join(cells) + " |"


def write_between(path, script, result):
    """Puts text between the two comments of a file that name a script.

    Raises:
        SystemExit: The file lacks them.
    """
    begin, end = f"<!-- {script} -->", f"<!-- end of {script} -->"
    text = path.read_text(encoding="utf-8")
    pattern = re.compile(re.escape(begin) + ".*?" + re.escape(end), re.DOTALL)
    if not pattern.search(text):
        raise SystemExit(f"{path} has no {begin} ... {end}")
    whole = f"{begin}\n{result}\n{end}"
    path.write_text(pattern.sub(lambda _: whole, text, count=1), encoding="utf-8")
