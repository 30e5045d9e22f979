"""Writes a random-weight llama-architecture GGUF of about 0.5 MB: a real model file that nobody has to download.

    python tiny_model.py OUT.gguf

Needs gguf and numpy. The same seed gives the same bytes. Its sentences mean nothing; that a real server computes them does.
"""

import sys

import gguf
import numpy as np

WIDTH, FEED, LAYERS, HEADS, KV_HEADS, CONTEXT = 64, 128, 2, 4, 2, 2048
LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.,:;?!'\"()[]{}-_/\\<>|\n"
WORDS = (
    "the a of to and in is it for on leaf gate fixture hash class card public redacted local hold split release"
    " yes no one two three red green blue"
).split()


def vocabulary() -> list[tuple[str, float, int]]:
    """Token text, score and type: three control tokens, every byte, letters and a few words."""
    kind = gguf.TokenType
    tokens = [("<unk>", 0.0, kind.UNKNOWN), ("<s>", 0.0, kind.CONTROL), ("</s>", 0.0, kind.CONTROL)]
    tokens += [(f"<0x{byte:02X}>", 0.0, kind.BYTE) for byte in range(256)]
    pieces = ["▁", *LETTERS, *("▁" + word for word in WORDS)]
    tokens += [(piece, -float(rank), kind.NORMAL) for rank, piece in enumerate(pieces, 1)]
    return [(text, score, int(what)) for text, score, what in tokens]


def write(out: str, seed: int = 7) -> None:
    """Writes the model to `out`."""
    rng = np.random.default_rng(seed)
    tokens = vocabulary()
    w = gguf.GGUFWriter(out, "llama")
    w.add_name("tiny-random")
    w.add_context_length(CONTEXT)
    w.add_embedding_length(WIDTH)
    w.add_block_count(LAYERS)
    w.add_feed_forward_length(FEED)
    w.add_head_count(HEADS)
    w.add_head_count_kv(KV_HEADS)
    w.add_layer_norm_rms_eps(1e-5)
    w.add_rope_dimension_count(WIDTH // HEADS)
    w.add_vocab_size(len(tokens))
    w.add_file_type(gguf.LlamaFileType.ALL_F32)
    w.add_tokenizer_model("llama")
    w.add_tokenizer_pre("default")
    w.add_token_list([text.encode() for text, _, _ in tokens])
    w.add_token_scores([score for _, score, _ in tokens])
    w.add_token_types([what for _, _, what in tokens])
    w.add_bos_token_id(1)
    w.add_eos_token_id(2)
    w.add_unk_token_id(0)
    w.add_add_bos_token(True)
    w.add_add_eos_token(False)
    w.add_chat_template("{% for m in messages %}<{{ m['role'] }}>{{ m['content'] }}\n{% endfor %}<assistant>")

    def weights(name: str, *shape: int, scale: float = 0.08) -> None:
        w.add_tensor(name, (rng.standard_normal(shape) * scale).astype(np.float32))

    def ones(name: str) -> None:
        w.add_tensor(name, np.ones(WIDTH, dtype=np.float32))

    weights("token_embd.weight", len(tokens), WIDTH, scale=0.5)
    output = rng.standard_normal((len(tokens), WIDTH)).astype(np.float32) * 0.5
    output[:259] = 0.0  # control and byte tokens keep logit 0, so that the words mostly win and the text stays readable
    w.add_tensor("output.weight", output)
    ones("output_norm.weight")
    for layer in range(LAYERS):
        at = f"blk.{layer}."
        ones(at + "attn_norm.weight")
        ones(at + "ffn_norm.weight")
        weights(at + "attn_q.weight", WIDTH, WIDTH)
        weights(at + "attn_k.weight", WIDTH * KV_HEADS // HEADS, WIDTH)
        weights(at + "attn_v.weight", WIDTH * KV_HEADS // HEADS, WIDTH)
        weights(at + "attn_output.weight", WIDTH, WIDTH)
        weights(at + "ffn_gate.weight", FEED, WIDTH)
        weights(at + "ffn_up.weight", FEED, WIDTH)
        weights(at + "ffn_down.weight", WIDTH, FEED)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


if __name__ == "__main__":
    write(sys.argv[1])
