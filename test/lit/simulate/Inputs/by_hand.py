"""The flags that a table of distributed.auto says: by_hand.py TABLE."""
import re
import sys

print(re.search(r"^chosen, as by hand: (--set .*)$", open(sys.argv[1]).read(), re.M).group(1))
