"""Makes files with the longest possible names in one directory: many.py COUNT."""

import os
import sys

for number in range(int(sys.argv[1])):
    os.close(os.open(f"{number:0255d}", os.O_CREAT | os.O_WRONLY))
print("made")
