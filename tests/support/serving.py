"""A page that is served for a test."""

import contextlib
import threading


@contextlib.contextmanager
def served_by(serve, *args):
    """Serve a page in a thread, by `serve(*args, port, tell, stop)`; give its address."""
    addresses, ready, stop = [], threading.Event(), threading.Event()

    def tell(address):
        addresses.append(address)
        ready.set()

    thread = threading.Thread(target=serve, args=(*args, 0, tell, stop), daemon=True)
    thread.start()
    try:
        assert ready.wait(60)
        yield addresses[0]
    finally:
        stop.set()
        thread.join(20)
    assert not thread.is_alive()
