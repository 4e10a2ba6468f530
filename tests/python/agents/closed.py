"""Makes directories that not even their owner may look into or change, with more of them inside."""

import os

for path in ("a/b/c", "a/b/d", "e", "f/g"):
    os.makedirs(path)
    with open(f"{path}/file", "w", encoding="ascii") as file:
        file.write("x")
    os.chmod(f"{path}/file", 0)
for path in ("a/b/c", "a/b/d", "a/b", "a", "e", "f/g", "f", "."):
    os.chmod(path, 0)
print("made")
