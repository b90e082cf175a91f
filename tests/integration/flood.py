"""flood.py COUNT PORT...: opens COUNT idle connections to each port of this machine, prints `open`, and closes them
all when its standard input ends."""

import resource
import socket
import sys

count = int(sys.argv[1])
ports = [int(port) for port in sys.argv[2:]]
assert count * len(ports) <= 5000, "a bounded flood"
hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
held = []
for _ in range(count):
    for port in ports:
        connection = socket.socket()
        connection.setblocking(False)
        connection.connect_ex(("127.0.0.1", port))
        held.append(connection)
print("open", flush=True)
sys.stdin.read()
