"""grpc_calls.py MODE: a gRPC server and a client with threads, on loopback, in two processes.

calls: unary calls and streams from eight threads. fork: the client, which has the threads of gRPC, forks, and its
children call. crash-client, crash-server, abort-server: one of the two dies while threads call.
"""

import concurrent.futures
import ctypes
import os
import signal
import subprocess
import sys
import threading

import grpc

THREADS, CALLS = 8, 50


def crash():
    ctypes.CDLL(None).strlen(ctypes.c_void_p(8))


class Calls(grpc.GenericRpcHandler):
    """Echoes; `/peer/crash` and `/peer/abort` do as they are called."""

    def service(self, details):
        kind = details.method.rpartition("/")[2]
        if kind == "stream":
            return grpc.unary_stream_rpc_method_handler(lambda request, _context: iter([request] * 10))
        actions = {"echo": lambda: None, "crash": crash, "abort": os.abort}
        return grpc.unary_unary_rpc_method_handler(lambda request, _context: (actions[kind](), request)[1])


def serve():
    server = grpc.server(concurrent.futures.ThreadPoolExecutor(4), handlers=[Calls()])
    print(server.add_insecure_port("127.0.0.1:0"), flush=True)
    server.start()
    signal.signal(signal.SIGTERM, lambda *_: server.stop(0))
    server.wait_for_termination()


def call(channel, name, text=b"hello"):
    try:
        return channel.unary_unary(f"/peer/{name}")(text, timeout=20, wait_for_ready=name == "echo")
    except grpc.RpcError as error:
        return error.code().name


def calls(port):
    """How many of all answers were right."""
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:

        def some(number):
            text = str(number).encode()
            right = sum(call(channel, "echo", text) == text for _ in range(CALLS))
            return right + sum(part == text for part in channel.unary_stream("/peer/stream")(text, timeout=20))

        with concurrent.futures.ThreadPoolExecutor(THREADS) as threads:
            return sum(threads.map(some, range(THREADS)))


def fork(port):
    """Children begin between calls: gRPC does not allow for a fork during one."""
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        for _ in range(5):
            with concurrent.futures.ThreadPoolExecutor(THREADS) as threads:
                answers = set(threads.map(lambda _: call(channel, "echo"), range(THREADS)))
            child = os.fork()
            if child == 0:
                with grpc.insecure_channel(f"127.0.0.1:{port}") as own:
                    os._exit(42 if call(own, "echo") == b"hello" else 1)
            print("child", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), answers, flush=True)


def main():
    mode = sys.argv[1]
    if mode == "serve":
        serve()
        return
    server = subprocess.Popen([sys.executable, __file__, "serve"], stdout=subprocess.PIPE, text=True)
    port = int(server.stdout.readline())
    if mode == "fork":
        fork(port)
    elif mode == "crash-client":
        channel = grpc.insecure_channel(f"127.0.0.1:{port}")
        for _ in range(3):
            threading.Thread(target=lambda: [call(channel, "echo") for _ in range(10**6)], daemon=True).start()
        print(call(channel, "echo"), flush=True)
        server.terminate()
        crash()
    elif mode != "calls":
        with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
            print(call(channel, "echo"), call(channel, mode.partition("-")[0]))
    print("right" if mode != "calls" else calls(port))
    server.terminate()
    print("server", server.wait())


main()
