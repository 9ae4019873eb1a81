"""Between a client and a server: TCP connections that can be cut."""

import contextlib
import select
import socket
import threading


class BreakingProxy:
    """Listens on `address`, and passes on what comes there."""

    def __init__(self, target):
        host, port = target.rsplit(":", 1)
        self._target = (host, int(port))
        self._lock = threading.Lock()
        self._pairs = set()
        self._refuses = False

    def __enter__(self):
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = "127.0.0.1:%d" % self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_):
        self._listener.close()
        self.cut(refuse=True)

    def cut(self, refuse=False):
        """Ends all connections, and those that come if told so."""
        with self._lock:
            self._refuses = refuse
            for pair in self._pairs:
                for end in pair:
                    with contextlib.suppress(OSError):
                        end.shutdown(socket.SHUT_RDWR)

    def serve(self):
        """Takes connections again."""
        with self._lock:
            self._refuses = False

    def _accept(self):
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            with self._lock:
                refuses = self._refuses
            if refuses:
                client.close()
                continue
            pair = client, socket.create_connection(self._target)
            with self._lock:
                self._pairs.add(pair)
            threading.Thread(target=self._pass_on, args=(pair,),
                             daemon=True).start()

    def _pass_on(self, pair):
        others = {pair[0]: pair[1], pair[1]: pair[0]}
        with contextlib.suppress(OSError):
            while True:
                for end in select.select(pair, [], [])[0]:
                    data = end.recv(1 << 16)
                    if not data:
                        raise OSError
                    others[end].sendall(data)
        with self._lock:
            self._pairs.discard(pair)
        for end in pair:
            end.close()
