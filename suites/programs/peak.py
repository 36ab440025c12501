"""Runs a command while it watches how large a folder gets. Prints the peak in bytes to a file.
   peak.py FOLDER RESULT COMMAND..."""
import os, subprocess, sys, time

folder, result, command = sys.argv[1], sys.argv[2], sys.argv[3:]

def size():
    total = 0
    try:
        for entry in os.scandir(folder):
            try:
                total += entry.stat().st_size
            except OSError:
                pass
    except OSError:
        pass
    return total

peak = 0
try:
    peak = int(open(result).read())
except OSError:
    pass
child = subprocess.Popen(command)
while child.poll() is None:
    peak = max(peak, size())
    time.sleep(0.005)
open(result, "w").write(str(peak))
sys.exit(child.returncode)
