"""Makes so many files with the longest names that there are, side by side: many.py COUNT."""

import os
import sys

for number in range(int(sys.argv[1])):
    os.close(os.open(f"{number:0255d}", os.O_CREAT | os.O_WRONLY))
print("made")
