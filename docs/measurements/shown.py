#!/usr/bin/env python3
"""What reports of `warpsmith verify` show, into the table of a page: shown.py PAGE REPORT.json…

A letter of docs/devices.md becomes E, of an emulated GPU, or H, of a real one, where a report has cases of that path, operands
and operation on that GPU and all of them are right. No letter becomes a lesser one. What is not right is printed.
"""
import json
import pathlib
import re
import sys

PROBLEM = re.compile(r"(grouped\d+\.)?(dual_)?gemm(?:\.\w+)?:(\w+)\*(\w+)>(\w+)((?::\w+)*)")
LEAST = "–CEHM"
# How weights are given, if not as they are.
FORMS = "prepared", "expanded"


def kind_of(case):
    """Path, tokens, weights, result and how they are given; then which of the six operations it is."""
    groups, dual, a, b, c, words = PROBLEM.fullmatch(case["problem"]).groups()
    words = words.split(":")
    c = "nvfp4" if c == "nvfp4" else "f16, bf16, f32"
    form = next((form for form in FORMS if form in words), None)
    kind = (case["variant"].split(".")[0], a, b, c, form, "k_factors" in words)
    return kind, (2 + 2 * ("gathered" in words) if groups else 0) + bool(dual)


def kinds_of(cells):
    path, tokens, weights, c = cells
    along_k = tokens.endswith(", along K")
    form = next((form for form in FORMS if weights.endswith(f", {form}")), None)
    for a in tokens.removesuffix(", along K").split(", "):
        for b in weights.removesuffix(f", {form}").split(", "):
            yield path.strip("`"), a, a if b == "as tokens" else b, c, form, along_k


def shown(report):
    outcomes = {}
    for case in report["cases"]:
        right = case["outcome"] == "right"
        if not right:
            print(f"{report['device']}: {case['problem']}, m = {case['m']}, {case['variant']}: {case['outcome']}")
        key = kind_of(case)
        outcomes[key] = outcomes.get(key, True) and right
    return {key for key, right in outcomes.items() if right}


def main(page, *paths):
    reports = [json.loads(pathlib.Path(path).read_text()) for path in paths]
    page = pathlib.Path(page)
    lines, columns = page.read_text().splitlines(), None
    for at, line in enumerate(lines):
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if line.startswith("| path |"):
            columns = cells[4:]
        if columns is None or not line.startswith("| `"):
            continue
        kinds = list(kinds_of(cells[:4]))
        for column, names in enumerate(columns):
            letters = list(cells[4 + column].replace(" ", ""))
            for report in reports:
                # NVIDIA b200 (emulated), NVIDIA H100 80GB HBM3
                name, emulated = report["device"].split()[1].lower(), "(emulated)" in report["device"]
                if name not in names.split():
                    continue
                found = shown(report)
                for operation, letter in enumerate(letters):
                    if letter != "–" and all((kind, operation) in found for kind in kinds):
                        letters[operation] = max(letter, "E" if emulated else "H", key=LEAST.index)
            cells[4 + column] = " ".join("".join(letters[i : i + 2]) for i in (0, 2, 4))
        lines[at] = "| " + " | ".join(cells) + " |"
    page.write_text("\n".join(lines) + "\n")


main(*sys.argv[1:])
