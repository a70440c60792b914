"""PyTorch's side of the comparison: `torch_peer.py FILE eager|compiled|plain|exact THREADS`.

Answers the commands of `peer.rs`, a line each: forward, train, check FILE, reset; and
keep_kinks_apart, for the exact peer, before the others read the problem.
"""

from __future__ import annotations

import sys
import time

import torch
from model import Problem
from safetensors.torch import save_file


class Peer:
    def __init__(self, path: str, mode: str):
        self.problem = Problem(path, mode)
        self.infer, self.loss = self.problem.model, self.problem.loss
        if mode == "compiled":
            self.infer = torch.compile(self.infer, dynamic=False)
            self.loss = torch.compile(self.loss, dynamic=False)

    def forward(self):
        with torch.inference_mode():
            self.infer(self.problem.features)

    def train(self):
        """One step of AdamW; the loss before it (m)."""
        loss, _ = self.differentiate()
        problem = self.problem
        torch.nn.utils.clip_grad_norm_(
            problem.model.parameters(), problem.settings["adamw"]["max_norm"], foreach=True
        )
        problem.optimizer.step()
        return loss.item()

    def differentiate(self):
        self.problem.model.zero_grad(set_to_none=True)
        loss, output = self.loss()
        (loss * self.problem.settings["loss_scale"]).backward()
        return loss, output

    def check(self, path):
        loss, output = self.differentiate()
        with torch.inference_mode():
            inferred = self.infer(self.problem.features)
        parameters = self.problem.model.named_parameters()
        tensors = {f"gradient.{name}": p.grad.contiguous() for name, p in parameters}
        tensors.update(output=output.detach().contiguous(), inferred=inferred.clone())
        save_file({**tensors, "loss": loss.detach()[None]}, path)


def main():
    path, mode, n_threads = sys.argv[1:]
    torch.set_num_threads(int(n_threads))
    peer = Peer(path, mode)
    print("ready", flush=True)
    for line in sys.stdin:
        command, *arguments = line.split()
        start = time.perf_counter()
        ms = lambda: (time.perf_counter() - start) * 1e3
        if command == "forward":
            peer.forward()
            answer = ms()
        elif command == "train":
            loss = peer.train()
            answer = f"{ms()} {loss}"
        elif command == "check":
            peer.check(*arguments)
            answer = "written"
        elif command == "keep_kinks_apart":
            peer.problem.keep_kinks_apart(path)
            answer = "moved"
        elif command == "reset":
            peer.problem.reset()
            answer = "reset"
        else:
            sys.exit(f"unknown command '{line.strip()}'")
        print(answer, flush=True)


main()
