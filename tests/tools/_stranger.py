#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A program on the workers' network that does not belong to the run (torture.py, fault `stranger`). Needs root.

  _stranger.py read SECRET        reads every packet until SIGTERM
  _stranger.py attack ADDRESS:PORT …   opens CONNECTIONS to each, one after the other, with garbage; until SIGTERM
Prints one JSON object.
"""

import json
import os
import resource
import signal
import socket
import sys
import time

CONNECTIONS = 10_000
AT_ONCE = 500
SECONDS_TO_CONNECT = 0.1
ALL_PROTOCOLS = 3  # ETH_P_ALL


def read(secret, stopped):
    """Whether the secret, and a key of the rendezvous that every worker writes in clear, were on the network."""
    packets = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ALL_PROTOCOLS))
    packets.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 26)
    packets.settimeout(0.1)
    seen = {"packets": 0, "keys_of_rendezvous": False, "secret": False}
    while not stopped:
        try:
            packet = packets.recv(1 << 16)
        except TimeoutError:
            continue
        seen["packets"] += 1
        seen["keys_of_rendezvous"] |= b"joined/" in packet
        seen["secret"] |= secret in packet
    return seen


def fill(address, port, stopped):
    """The connections that were made to a port."""
    greeting = b"\xff" + bytes(8) + b"\x7f\x03\x00NULL"  # of ZeroMQ, then anything
    made = 0
    for _ in range(CONNECTIONS // AT_ONCE):
        if stopped:
            break
        clients = [socket.socket() for _ in range(AT_ONCE)]
        for client in clients:
            client.setblocking(False)
            client.connect_ex((address, port))
        time.sleep(SECONDS_TO_CONNECT)
        for client in clients:
            try:
                client.send((greeting if made % 2 else b"") + os.urandom(1 + made % 300))
                made += 1
            except OSError:  # not connected
                pass
            client.close()
    return made


def main():
    stopped = []
    signal.signal(signal.SIGTERM, lambda *_: stopped.append(1))
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    if sys.argv[1] == "read":
        print(json.dumps(read(sys.argv[2].encode(), stopped)))
    else:
        places = [place.split(":") for place in sys.argv[2:]]
        print(json.dumps({f"{address}:{port}": fill(address, int(port), stopped) for address, port in places}))


if __name__ == "__main__":
    main()
