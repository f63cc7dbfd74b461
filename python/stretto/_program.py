"""The command `stretto` of an installation by pip."""
import os
import pathlib
import sys


def main():
    program = pathlib.Path(__file__).resolve().parent / "_installed/bin/stretto"
    try:
        os.execv(program, ["stretto", *sys.argv[1:]])
    except OSError as error:
        sys.exit(f"stretto: {program}: {error.strerror}")
