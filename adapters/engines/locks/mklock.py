#!/usr/bin/env python3
"""Write the hashes and sizes of a lock file anew (for maintainers; needs Python 3.11+ and uv on the PATH).

usage: mklock.py FILE.lock                                    keep the pins, write their hashes and sizes
       mklock.py --resolve FILE.lock [--override NAME==V] ..  take the pins as roots and add all that they need

A new version begins as a file of header lines ("# key: value", see docs/engines/README.md) and one line
NAME==VERSION. The hashes are those that the package index states for the wheels of the platforms and Pythons
in the header; pip checks them against what it downloads. No index is named here or in a lock: uv's own settings count.
"""
import argparse
import pathlib
import subprocess
import tempfile
import tomllib

PLATFORM = "x86_64-manylinux_2_34"


def read(path):
    header, pins = [], []
    for line in path.read_text().splitlines():
        if line.startswith("#"):
            header.append(line)
        elif line.strip():
            pins.append(line.split()[0])
    return header, pins


def pythons(header):
    for line in header:
        key, _, value = line.lstrip("# ").partition(":")
        if key == "python":
            return value.split()
    raise SystemExit("the header has no line '# python: 3.11 ...'")


def locked(pins, python, resolve, overrides):
    """The packages that the pins stand for under one Python: name -> (version, wheels)."""
    with tempfile.TemporaryDirectory() as tmp:
        tmp = pathlib.Path(tmp)
        (tmp / "in.txt").write_text("\n".join(pins) + "\n")
        (tmp / "override.txt").write_text("\n".join(overrides) + "\n")
        out = tmp / "pylock.toml"
        cmd = ["uv", "pip", "compile", "-q", "--only-binary", ":all:", "--format", "pylock.toml", "-o", str(out),
               "--python-platform", PLATFORM, "--python-version", python, "--override", str(tmp / "override.txt")]
        subprocess.run(cmd + ([] if resolve else ["--no-deps"]) + [str(tmp / "in.txt")], check=True)
        packages = tomllib.loads(out.read_text())["packages"]
    return {p["name"]: (p["version"], p["wheels"]) for p in packages}


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("file", type=pathlib.Path)
    ap.add_argument("--resolve", action="store_true")
    ap.add_argument("--override", action="append", default=[])
    a = ap.parse_args()
    header, pins = read(a.file)
    names, lines = {}, list(header)
    if a.resolve:  # under the oldest Python; the others get the same versions
        pins = [f"{name}=={v}" for name, (v, _) in locked(pins, pythons(header)[0], True, a.override).items()]
    for python in pythons(header):
        for name, (version, wheels) in locked(pins, python, False, []).items():
            size, hashes = names.setdefault((name, version), [0, {}])
            for w in wheels:
                hashes[w["hashes"]["sha256"]] = True
            names[name, version][0] = max(size, max(w["size"] for w in wheels))
    for (name, version), (size, hashes) in sorted(names.items()):
        lines.append(" ".join([f"{name}=={version}"] + [f"--hash=sha256:{h}" for h in hashes] + [f" # {size}"]))
    a.file.write_text("\n".join(lines) + "\n")
    print(f"{a.file}: {len(names)} packages, {sum(v[0] for v in names.values()) / 1e6:.0f} MB to download")


if __name__ == "__main__":
    main()
