"""The channel of `Loader(fetch="leader")`: one member of a replica receives, and broadcasts by torch.distributed.

Every stage has a group of the leader and its members, so that media reach the first stage alone. All members of a
replica take their steps in the same order: each `next` is a collective.
"""

import numpy as np
import torch
import torch.distributed as dist

from evenkeel import agreement
from evenkeel.fetching import END, ERROR, HELLO, STEP, worded


def make_groups(topology):
    """{stage: process group of the leader and the stage's members}, those that this rank is in. A collective of the
    world: every member of every replica calls it."""
    groups = {}
    # Every rank of the world makes every group, in one order, as all releases of torch allow.
    for replica in range(topology.data):
        for stage in range(topology.pipeline):
            members = sorted({topology.leaders[replica], *topology.members(replica, stage)})
            if len(members) == 1:
                continue
            group = dist.new_group(members)
            if topology.rank in members:
                groups[stage] = group
    return groups


def _send(group, leader, kind, step, payload):
    device = agreement.device_of(group)
    head = torch.tensor([kind, step, len(payload)], dtype=torch.int64, device=device)
    dist.broadcast(head, leader, group=group)
    if len(payload):
        dist.broadcast(torch.from_numpy(np.frombuffer(payload, np.uint8)).to(device), leader, group=group)


class LeaderGiver:
    """roles: {rank: number of the role}, as fetching.roles_between gives them."""

    def __init__(self, topology, roles):
        self._groups, self._leader, self._own = make_groups(topology), topology.leader, roles[topology.rank]
        self._role_of = {stage: roles[topology.members(stage=stage)[0]] for stage in self._groups}
        self._takers = {stage: len(topology.members(stage=stage)) - (stage == topology.stage) for stage in self._groups}

    def _to_all(self, kind, payload=b""):
        for group in self._groups.values():
            _send(group, self._leader, kind, 0, bytearray(payload))

    def refuse(self, error):
        """Tells the others why this process could not connect."""
        self._to_all(ERROR, worded(error))

    def hello(self, payload):
        self._to_all(HELLO, payload)

    def step(self, index, native):
        made, passed = {}, 0
        for stage, group in self._groups.items():
            role = self._role_of[stage]
            if role not in made:
                made[role] = native.share(role, bytearray)
            _send(group, self._leader, STEP, index, made[role])
            passed += len(made[role]) * self._takers[stage]
        return made.get(self._own), passed

    def end(self):
        self._to_all(END)

    def error(self, payload):
        self._to_all(ERROR, payload)

    def close(self):
        pass


class LeaderTaker:
    def __init__(self, topology):
        self._group, self._leader = make_groups(topology)[topology.stage], topology.leader

    def receive(self):
        device = agreement.device_of(self._group)
        head = torch.empty(3, dtype=torch.int64, device=device)
        dist.broadcast(head, self._leader, group=self._group)
        kind, step, size = head.tolist()
        payload = torch.empty(size, dtype=torch.uint8, device=device)
        if size:
            dist.broadcast(payload, self._leader, group=self._group)
        return kind, step, memoryview(payload.cpu().numpy())

    def close(self):
        pass
