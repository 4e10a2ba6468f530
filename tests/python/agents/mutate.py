"""Changes a tree at random: creates, edits, deletes, renames, changes modes and types. `mutate.py SEED COUNT`, in the tree."""
import os
import random
import shutil
import sys

NAMES = ["a", "b", "c.txt", "with space", "é", "new\nline", "tab\there", 'quo"te', "back\\slash", "-dash", ".dot", "trail ", "\u202e"]


def paths(kinds):
    found = []
    for directory, directories, files in os.walk("."):
        directories[:] = [name for name in directories if name != ".git"]
        for name in (directories if kinds == "d" else files):
            path = os.path.join(directory, name)
            if kinds != "d" or not os.path.islink(path):
                found.append(path)
    return sorted(found)


def content(chance):
    kind = chance.randrange(6)
    if kind == 0:
        return b""
    if kind == 1:
        return bytes(chance.randrange(256) for _ in range(chance.randrange(1, 3000)))
    lines = [b"line %d" % chance.randrange(20) for _ in range(chance.randrange(1, 60))]
    return (b"\r\n" if kind == 2 else b"\n").join(lines) + (b"" if kind == 3 else b"\n")


def edit(chance, path):
    with open(path, "rb") as file:
        lines = file.read().splitlines(keepends=True)
    for _ in range(chance.randrange(1, 4)):
        at = chance.randrange(len(lines) + 1)
        if chance.random() < 0.5:
            lines.insert(at, b"inserted %d\n" % chance.randrange(9))
        elif at < len(lines):
            del lines[at]
    with open(path, "wb") as file:
        file.write(b"".join(lines))


def remove(path):
    if os.path.isdir(path) and not os.path.islink(path):
        shutil.rmtree(path)
    elif os.path.lexists(path):
        os.unlink(path)


def step(chance):
    directory = chance.choice(["."] + paths("d"))
    place = os.path.join(directory, chance.choice(NAMES))
    files = paths("f")
    action = chance.randrange(8)
    if action <= 1:
        remove(place)
        with open(place, "wb") as file:
            file.write(content(chance))
    elif action == 2:
        remove(place)
        os.mkdir(place)
        with open(os.path.join(place, chance.choice(NAMES)), "wb") as file:
            file.write(content(chance))
    elif action == 3:
        remove(place)
        os.symlink(chance.choice(["a", "b", "nowhere"]), place)
    elif files:
        path = chance.choice(files)
        if action == 4:
            remove(path)
        elif action == 5 and not os.path.lexists(place):
            os.rename(path, place)
        elif os.path.islink(path):
            remove(path)
        elif action == 6:
            os.chmod(path, chance.choice([0o644, 0o755]))
        else:
            edit(chance, path)


chance = random.Random(int(sys.argv[1]))
for _ in range(int(sys.argv[2])):
    step(chance)
