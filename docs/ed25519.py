"""Ed25519 signatures, verification only (RFC 8032 section 5.1). Nothing is secret here, and nothing needs to be fast."""
import hashlib

P = 2**255 - 19                                       # coordinates are counted modulo P
ORDER = 2**252 + 27742317777372353535851937790883648493
D = -121665 * pow(121666, -1, P) % P                  # the curve: y² - x² = 1 + D x² y²

def decoded(data):
    """The point that 32 bytes stand for (section 5.1.3): y, and whether x is odd in the top bit; `None` where there is none."""
    y, odd = int.from_bytes(data, "little") & (1 << 255) - 1, data[31] >> 7
    x2 = (y * y - 1) * pow(D * y * y + 1, -1, P) % P
    x = pow(x2, (P + 3) // 8, P)                      # a square root of x2 or of -x2, where there is one
    if (x * x - x2) % P:
        x = x * pow(2, (P - 1) // 4, P) % P
    if y >= P or (x * x - x2) % P or x == 0 and odd:
        return None
    return (x if x & 1 == odd else P - x, y)

def add(a, b):
    both = D * a[0] * b[0] * a[1] * b[1] % P
    x = (a[0] * b[1] + b[0] * a[1]) * pow(1 + both, -1, P)
    y = (a[1] * b[1] + a[0] * b[0]) * pow(1 - both, -1, P)
    return (x % P, y % P)

def times(number, point):
    out = (0, 1)                                      # adds nothing
    while number:
        if number & 1:
            out = add(out, point)
        point, number = add(point, point), number >> 1
    return out

BASE = decoded((4 * pow(5, -1, P) % P).to_bytes(32, "little"))

def signed(key, text, signature):
    """Whether this is the signature (64 bytes) of that key (32 bytes) over the text."""
    if len(key) != 32 or len(signature) != 64:
        return False
    a, r, s = decoded(key), decoded(signature[:32]), int.from_bytes(signature[32:], "little")
    digest = hashlib.sha512(signature[:32] + key + text).digest()
    if a is None or r is None or s >= ORDER:
        return False
    return times(s, BASE) == add(r, times(int.from_bytes(digest, "little"), a))
