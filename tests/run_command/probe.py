"""Tries each way out, and prints one line for each: `NAME open DETAIL` or `NAME shut DETAIL`. The facts come as JSON in the first argument.

What would change the machine, were it open, is marked `harmful`: it is tried in a user namespace alone, never as the machine's own root.
"""

import ctypes
import errno
import json
import os
import socket
import struct
import sys
import urllib.request

facts = json.loads(sys.argv[1])
libc = ctypes.CDLL(None, use_errno=True)
TRIES = {}
HARMFUL = set()
with open("/proc/self/uid_map") as f:
    CONFINED = f.read().split() != ["0", "0", "4294967295"]


def way(function):
    TRIES[function.__name__] = function
    return function


def harmful(function):
    HARMFUL.add(function.__name__)
    return way(function)


def call(name, *args):
    got = getattr(libc, name)(*args)
    if got < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return got


def connect(family, address, kind=socket.SOCK_STREAM):
    with socket.socket(family, kind) as s:
        s.settimeout(2)
        s.connect(address)
        s.sendall(b"GONE ROUND")
        return "connected"


@way
def name_lookup():
    return socket.getaddrinfo("leafgate-probe.example.org", 80)


@way
def dns_by_udp():
    query = struct.pack("!6H", 1, 256, 1, 0, 0, 0) + b"\x06secret\x07example\x03org\x00" + struct.pack("!2H", 1, 1)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        s.settimeout(1)
        s.sendto(query, ("127.0.0.1", facts["udp"]))
        # To nobody's port it may be sent; the listener outside tells whether it arrived.
        return s.recv(512)


@way
def udp_far():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        return s.sendto(b"GONE ROUND", ("192.0.2.1", 53))


@way
def tcp_other_port():
    return connect(socket.AF_INET, ("127.0.0.1", facts["tcp"]))


@way
def tcp_six():
    return connect(socket.AF_INET6, ("::1", facts["tcp6"]))


@way
def tcp_own_address():
    return connect(socket.AF_INET, (facts["own"], facts["any"]))


@way
def tcp_far():
    return connect(socket.AF_INET, ("192.0.2.1", 80))


@way
def six_far():
    return connect(socket.AF_INET6, ("2001:db8::1", 80))


@way
def packet_socket():
    return socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)


@way
def raw_socket():
    return socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP)


@way
def vsock():
    return socket.socket(socket.AF_VSOCK, socket.SOCK_STREAM)


@way
def bluetooth():
    return socket.socket(31, socket.SOCK_RAW, 1)


@way
def kernel_crypto():
    return socket.socket(socket.AF_ALG, socket.SOCK_SEQPACKET)


@way
def netlink_of_another_kind():
    return socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 15)


@way
def socket_by_its_other_number():
    got = call("syscall", 0x40000000 | 41, 40, 1, 0)
    return got


@way
def abstract_socket():
    return connect(socket.AF_UNIX, "\0" + facts["abstract"])


@way
def path_socket():
    return connect(socket.AF_UNIX, facts["path"])


@way
def path_socket_with_a_space():
    return connect(socket.AF_UNIX, facts["space"])


@way
def path_socket_bound_by_another_name():
    return connect(socket.AF_UNIX, facts["hidden"])


@way
def path_socket_renamed():
    return connect(socket.AF_UNIX, facts["folder"] + "/renamed")


@way
def path_socket_linked():
    return connect(socket.AF_UNIX, facts["folder"] + "/second")


@way
def path_socket_with_a_newline():
    return connect(socket.AF_UNIX, facts["folder"] + "/a\nline")


@way
def path_socket_in_a_renamed_folder():
    return connect(socket.AF_UNIX, facts["folder"] + "/moved/s")


@way
def datagram_socket():
    return connect(socket.AF_UNIX, facts["folder"] + "/datagrams", socket.SOCK_DGRAM)


@way
def pair_of_datagrams():
    # Bound to nobody: either end may send to any path.
    with socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)[0] as s:
        return s.sendto(b"GONE ROUND", facts["folder"] + "/datagrams")


@way
def run_folder():
    return os.stat(facts["run"])


@way
def shared_memory():
    return os.stat(facts["shm"])


@way
def ring():
    return call("syscall", 425, 8, ctypes.create_string_buffer(256))


@harmful
def key_lookup():
    return call("syscall", 249 if os.uname().machine == "x86_64" else 218, b"user", b"leafgate", None, 0)


@way
def see_outside():
    # `ptrace` and `process_vm_readv` need a process that can be named.
    os.kill(facts["pid"], 0)
    return "signalled"


@way
def proc_outside():
    own = [int(name) for name in os.listdir("/proc") if name.isdigit()]
    if facts["pid"] in own or len(own) > 8:
        return own
    raise OSError(errno.ESRCH, f"only {len(own)} processes are seen")


@harmful
def first_process_memory():
    return open("/proc/1/mem", "rb")


@harmful
def first_process_ptrace():
    return call("ptrace", 16, 1, None, None)


@way
def first_process_descriptors():
    # Their numbers may be listed; what is behind them is another matter.
    return [os.readlink("/proc/1/fd/" + name) for name in os.listdir("/proc/1/fd")]


@harmful
def take_the_mask_off():
    return call("umount2", facts["path"].encode(), 2)


@harmful
def take_run_off():
    return call("umount2", b"/run", 2)


@harmful
def take_proc_off():
    return call("umount2", b"/proc", 2)


@harmful
def mount_more():
    return call("mount", b"tmpfs", b"/mnt", b"tmpfs", 0, None)


@harmful
def namespace_below():
    return call("unshare", 0x10000000)


@harmful
def network_below():
    return call("unshare", 0x40000000)


@harmful
def core_pattern():
    with open("/proc/sys/kernel/core_pattern", "r+b") as f:
        return f.write(f.read())


@harmful
def system_settings():
    return open("/sys/kernel/uevent_helper", "wb") if os.path.exists("/sys/kernel/uevent_helper") else open("/sys/kernel/mm/ksm/run", "r+b")


@way
def descriptor_of_the_shell():
    return os.fstat(facts["fd"])


def leafgate():
    body = facts["body"].encode()
    base = os.environ["OPENAI_BASE_URL"]
    request = urllib.request.Request(base + "/chat/completions", body, {"content-type": "application/json"})
    return urllib.request.urlopen(request, timeout=20).read().decode()


for name, function in TRIES.items():
    if name not in facts.get("only", [name]):
        continue
    if name in HARMFUL and not CONFINED:
        sys.exit(f"{name} is not tried here: this is the machine's own user namespace")
    try:
        print(name, "open", str(function())[:120], flush=True)
    except OSError as error:
        print(name, "shut", error, flush=True)
if "body" in facts:
    print("leafgate", "open", json.loads(leafgate())["choices"][0]["message"]["content"], flush=True)
