"""Nests directories in the workspace, deeper than any path, stack or table of descriptors: deep.py LEVELS."""

import os
import sys

os.chdir("/workspace")
for _ in range(int(sys.argv[1])):
    os.mkdir("d")
    os.chdir("d")
os.symlink("/", "root")
print("made")
