#!/usr/bin/env python3
"""Variants of corpus inputs by their structure, for run.sh to begin with:

    tests/fuzz/vary.py BUILD/fuzzing TARGET...

Random bytes seldom hit a certain type at a certain place. So each value of an
input in JSON gets every other type, and its key other names; each field of a
configuration, each number of a profile and each cell of a table every kind of
value. They go to FOLDER/TARGET/corpus; what adds no edge is gone with
`run.sh BUILD take`.
"""
import hashlib
import json
import os
import random
import re
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
LARGEST = 16384  # bytes, run.sh's -max_len
MOST = 10000  # variants of a target; of more some are drawn
VALUES = [None, True, False, 0, -1, 1, 2, 1e308, -0.5, 1e-320, 2**63 - 1,
          -2**63 + 1, 2**64, 2**32, '', 'x', '0', '1e9', 'NaN', '-1', 'inf',
          ' 1', '1,2', [], [None], [0, 1], ['x'], {}, {'x': 1}, [[1]],
          [{'a': 1}]]
SCALARS = ['', '~', 'true', 'false', '0', '-1', '1', '2', '1.5', '1e308',
           '.nan', '.inf', '9223372036854775807', '18446744073709551616', 'x',
           '""', '"0"', '1ms', '1us', '1GBps', '1MiB', '-1ms', '0.5%', '10 %',
           'a,b', '[]', '[0]', '[1, 2]', '[a]', '[[1]]', '{}', '{x: 1}',
           '[{x: 1}]', '1f1b', 'all', 'none', 'auto', '&a *a', '!!str 1', '|',
           '1..4', '1:2', '1:2,3:4']
NUMBERS = ['0', '-1', '1e308', 'nan', 'inf', '-inf', '"x"', '""', '{}', '[]',
           '9223372036854775807', '18446744073709551615', '1e-320', 'true',
           'false', 'MEDIAN', '[1,2]', '2', '0.5', '-0.0']
CELLS = ['', '0', '-1', '1', 'x', '1e308', 'nan', '9223372036854775807',
         '9223372036854775808', '-9223372036854775809', '1.5', ' 2', '"3"',
         '0x1', '99999999999999999999']


def inputs(target):
    """The corpus, shortest first."""
    folder = os.path.join(HERE, 'corpus', target)
    texts = [open(os.path.join(folder, name), 'rb').read().decode('latin1')
             for name in os.listdir(folder)]
    return sorted(texts, key=lambda text: (len(text), text))


def places(value, path=()):
    """Paths to a value and all that is in it."""
    yield path
    if isinstance(value, dict):
        for key in value:
            yield from places(value[key], path + (key,))
    elif isinstance(value, list):
        for index in range(min(len(value), 6)):
            yield from places(value[index], path + (index,))


def changed(document, path, change):
    """A copy with change(parent, key) made at the path."""
    copy = json.loads(json.dumps(document))
    parent = copy
    for key in path[:-1]:
        parent = parent[key]
    change(parent, path[-1])
    return json.dumps(copy)


def set_to(value):
    return lambda parent, key: parent.__setitem__(key, value)


def renamed(name):
    return lambda parent, key: parent.__setitem__(name, parent.pop(key))


def of_json(target):
    documents = []
    for text in inputs(target):
        try:
            document = json.loads(text)
        except ValueError:
            continue
        if isinstance(document, (dict, list)):
            documents.append(document)
    names = sorted({key for document in documents for path in places(document)
                    for key in path if isinstance(key, str) and len(key) < 40})
    seen = set()
    for document in documents:
        size = len(json.dumps(document)) // 400
        for path in places(document):
            kind = (tuple('#' if isinstance(key, int) else key for key in path),
                    size)
            if not path or kind in seen:
                continue
            seen.add(kind)
            for value in VALUES:
                yield changed(document, path, set_to(value))
            yield changed(document, path,
                          lambda parent, key: parent.__delitem__(key))
            if isinstance(path[-1], str):
                for name in random.sample(names, min(4, len(names))):
                    yield changed(document, path, renamed(name))


def of_config():
    with open(os.path.join(HERE, '../../docs/config.md')) as file:
        fields = sorted(set(re.findall(r'^\| `([a-z_0-9.]+)`', file.read(),
                                       re.M)))
    for field in fields:
        keys = field.split('.')
        above = ''.join('  ' * depth + key + ':\n'
                        for depth, key in enumerate(keys[:-1]))
        for value in SCALARS:
            yield f"{above}{'  ' * (len(keys) - 1)}{keys[-1]}: {value}\n"


def of_lines(target, values):
    """Lines `name: value` and `name {` with other values, twice, or gone."""
    seen = set()
    for text in inputs(target):
        lines = text.split('\n')
        for index, line in enumerate(lines):
            name = re.match(r'\s*([a-z_]+)\s*[:{]', line)
            if not name or (name[1], len(text) // 500) in seen:
                continue
            seen.add((name[1], len(text) // 500))
            front, behind = lines[:index], lines[index + 1:]
            yield '\n'.join(front + behind)
            yield '\n'.join(front + [line, line] + behind)
            for value in values if ':' in line else []:
                other = re.sub(r':.*', ': ' + value, line)
                yield '\n'.join(front + [other] + behind)


def of_table(target):
    for text in inputs(target):
        lines = text.split('\n')
        for index, line in enumerate(lines[:6]):
            front, behind = lines[:index], lines[index + 1:]
            yield '\n'.join(front + behind)
            yield '\n'.join(front + [line, line] + behind)
            cells = line.split(',')
            for at in range(min(len(cells), 12)):
                for value in CELLS:
                    other = ','.join(cells[:at] + [value] + cells[at + 1:])
                    yield '\n'.join(front + [other] + behind)


def variants(target):
    if target == 'config':
        yield from of_config()
    elif target in ('profile', 'training_log'):
        yield from of_lines(target, NUMBERS)
    elif target in ('job_table', 'lengths', 'torch_csv'):
        yield from of_table(target)
    else:
        yield from of_json(target)


def main():
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    random.seed(1)
    for target in sys.argv[2:]:
        if not os.path.isdir(os.path.join(HERE, 'corpus', target)):
            sys.exit(f'vary.py: no target {target}')
        made = {text.encode('latin1', 'replace') for text in variants(target)}
        made = sorted(data for data in made if len(data) <= LARGEST)
        if not made:
            sys.exit(f'vary.py: {target} has no structure that is known here')
        kept = random.sample(made, min(MOST, len(made)))
        folder = os.path.join(sys.argv[1], target, 'corpus')
        os.makedirs(folder, exist_ok=True)
        for data in kept:
            name = hashlib.sha1(data).hexdigest()
            with open(os.path.join(folder, name), 'wb') as file:
                file.write(data)
        print(f'{target}: {len(kept)} of {len(made)} variants')


if __name__ == '__main__':
    main()
