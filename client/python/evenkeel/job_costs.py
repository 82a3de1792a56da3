"""Replaces the costs of a job file in place: comments, order and spaces of everything else stay. Needs PyYAML."""

import os
import tempfile

from evenkeel.errors import InvalidArgument

__all__ = ["replaced", "write"]


def write(path, costs):
    """Sets `phases[].cost` of the job file to {phase: YAML of a cost}. The file is replaced whole or, on an error, stays."""
    with open(path, encoding="utf-8", newline="") as file:
        text = file.read()
    changed = replaced(text, costs, str(path))
    target = os.path.realpath(path)
    descriptor, temporary = tempfile.mkstemp(dir=os.path.dirname(target), prefix=".evenkeel-")
    try:
        with open(descriptor, "w", encoding="utf-8", newline="") as file:
            file.write(changed)
        os.chmod(temporary, os.stat(target).st_mode & 0o7777)
        os.replace(temporary, target)
    except BaseException:
        os.unlink(temporary)
        raise


def replaced(text, costs, where="job"):
    """`text` with the costs. InvalidArgument if a phase has no cost here or a cost has no phase there: phases' costs are
    compared, so all are in one unit."""
    yaml = _yaml()
    try:
        root = yaml.compose(text)
    except yaml.YAMLError as error:
        raise InvalidArgument(f"{where}: {error}", "INVALID_ARGUMENT") from None
    phases = _phases(yaml, root, where)
    missing, unknown = sorted(phases.keys() - costs.keys()), sorted(costs.keys() - phases.keys())
    if unknown:
        raise InvalidArgument(f"{where}: has no phase '{unknown[0]}', which a profile is of; its phases: {', '.join(phases)}",
                              "INVALID_ARGUMENT")
    if missing:
        raise InvalidArgument(f"{where}: phase '{missing[0]}' has no profile, and its cost would stay in another unit; give "
                              "profiles of all phases", "INVALID_ARGUMENT")
    edits = sorted((_edit(yaml, node, text, costs[name], f"{where}: phase '{name}'") for name, node in phases.items()), reverse=True)
    changed = text
    for begin, end, new in edits:
        changed = changed[:begin] + new + changed[end:]
    _check(yaml, text, changed, costs, where)
    return changed


def _yaml():
    try:
        import yaml
    except ImportError:
        raise InvalidArgument("--write needs PyYAML: pip install pyyaml, or paste the costs by hand", "INVALID_ARGUMENT") from None
    return yaml


def _member(node, key):
    """(key, value) nodes of a mapping, or None."""
    return next(((name, value) for name, value in node.value if name.value == key), None)


def _phases(yaml, root, where):
    """{name: mapping node}"""
    member = _member(root, "phases") if isinstance(root, yaml.MappingNode) else None
    if member is None or not isinstance(member[1], yaml.SequenceNode):
        raise InvalidArgument(f"{where}: phases: expected a list", "INVALID_ARGUMENT")
    phases = {}
    for i, node in enumerate(member[1].value):
        name = _member(node, "name") if isinstance(node, yaml.MappingNode) else None
        if name is None or name[1].value in phases:
            raise InvalidArgument(f"{where}: phases[{i}].name: is missing or there twice", "INVALID_ARGUMENT")
        phases[name[1].value] = node
    return phases


def _edit(yaml, phase, text, cost, where):
    """(begin, end, new text)"""
    present = _member(phase, "cost")
    if present is not None:
        begin, end = present[1].start_mark.index, _end(yaml, present[1])
        if "#" in text[begin:end]:
            raise InvalidArgument(f"{where}: its cost contains a comment; replace it by hand", "INVALID_ARGUMENT")
        return begin, end, cost
    name, value = _member(phase, "name")
    if phase.flow_style:
        return value.end_mark.index, value.end_mark.index, f", cost: {cost}"
    line_end = text.find("\n", value.end_mark.index)
    line_end = len(text) if line_end < 0 else line_end - (text[line_end - 1] == "\r")
    newline = "\r\n" if "\r\n" in text else "\n"
    return line_end, line_end, f"{newline}{' ' * name.start_mark.column}cost: {cost}"


def _end(yaml, node):
    """Where the text of a node ends: of a block mapping the end of its last value, not the start of the next key."""
    if isinstance(node, yaml.MappingNode) and not node.flow_style and node.value:
        return _end(yaml, node.value[-1][1])
    return node.end_mark.index


def _check(yaml, before, after, costs, where):
    """The edit changed the costs and nothing else, whatever style the file is written in."""
    try:
        expected = yaml.safe_load(before)
        for phase in expected["phases"]:
            phase["cost"] = yaml.safe_load(costs[phase["name"]])
        same = yaml.safe_load(after) == expected
    except yaml.YAMLError:
        same = False
    if not same:
        raise InvalidArgument(f"{where}: its style is not understood; paste the costs by hand", "INVALID_ARGUMENT")
