"""Writes the support matrix of README.md from docs/support.toml and the tests' `proves` marks.

python tools/support_matrix.py [--check]
"""

from __future__ import annotations

import ast
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
BEGIN, END = "<!-- support matrix: made by tools/support_matrix.py -->", "<!-- end of support matrix -->"


def proofs(tests: Path) -> dict[str, list[str]]:
    """For each key, the test files that prove it."""
    found: dict[str, set[str]] = {}
    for file in sorted(tests.rglob("test_*.py")):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "proves":
                for argument in node.args:
                    key = ast.literal_eval(argument)
                    found.setdefault(key, set()).add(file.relative_to(ROOT).as_posix())
    return {key: sorted(files) for key, files in found.items()}


def table() -> str:
    capabilities = tomllib.loads((ROOT / "docs" / "support.toml").read_text())["capability"]
    proven = proofs(ROOT / "tests")
    unknown = set(proven) - {each["key"] for each in capabilities}
    if unknown:
        raise SystemExit(f"tests prove what docs/support.toml does not list: {', '.join(sorted(unknown))}")
    lines = ["| capability | state | proven by |", "|---|---|---|"]
    for each in capabilities:
        files = proven.get(each["key"], [])
        state = "proven" if files else "experimental" if each.get("experimental") else "absent"
        links = ", ".join(f"[{Path(file).stem.removeprefix('test_')}]({file})" for file in files)
        lines.append(f"| {each['says']} | {state} | {links} |")
    return "\n".join(lines)


def main() -> int:
    readme = ROOT / "README.md"
    text = readme.read_text()
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    wanted = f"{before}{BEGIN}\n{table()}\n{END}{after}"
    if "--check" in sys.argv:
        return 0 if text == wanted else 1
    readme.write_text(wanted)
    return 0


if __name__ == "__main__":
    sys.exit(main())
