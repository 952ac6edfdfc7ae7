"""Calls of every kind, one after the other; the test looks for the lines that carry a name."""
import asyncio
import functools
import os
import sys
import threading
import time


def spin(n):
    total = 0
    for i in range(n):
        total += i * i  # SPIN
    return total


def deep(n):
    if n:
        return deep(n - 1)  # DEEP
    return spin(2000)  # BOTTOM


def key(value):
    return -spin(40)  # KEY


def by_sorted():
    return sorted(range(50), key=key)  # SORTED


def add(a, b):
    return a + spin(40)  # ADD


def by_reduce():
    return functools.reduce(add, range(50))  # REDUCE


def numbers():
    for _ in range(10):
        yield spin(200)  # YIELD


def by_generator():
    return sum(numbers())  # SUM


class Made:
    def __init__(self):
        self.value = spin(2000)  # INIT


def by_class():
    return Made()  # MADE


async def waits():
    await asyncio.sleep(0)
    return spin(2000)  # AWAITED


async def gathers():
    for _ in range(2):
        await waits()  # AWAITS


def by_asyncio(loop):
    loop.run_until_complete(gathers())  # LOOP


def left(spent):
    start = time.thread_time_ns()
    spin(30000)  # LEFT
    spent[0] += time.thread_time_ns() - start


def right(spent):
    start = time.thread_time_ns()
    spin(10000)  # RIGHT
    spent[1] += time.thread_time_ns() - start


def in_thread():
    while True:
        spin(3000)  # THREAD


def main(kind):
    loop = asyncio.new_event_loop()
    spent = [0, 0]
    if kind == "shares":
        threading.Thread(target=stop, args=(spent,), daemon=True).start()
    if kind == "threads":
        for _ in range(3):
            threading.Thread(target=in_thread, daemon=True).start()
    print("ready", flush=True)
    while True:
        if kind != "calls":
            left(spent)  # MAIN
            right(spent)
            continue
        deep(20)  # CALLS
        by_sorted()
        by_reduce()
        by_generator()
        by_class()
        by_asyncio(loop)


def stop(spent):
    """Says what `left` and `right` took when there is no more input."""
    sys.stdin.read()
    print(*spent, flush=True)
    os._exit(0)


main(sys.argv[1])  # MODULE
