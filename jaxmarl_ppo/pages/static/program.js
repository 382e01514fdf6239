// Computes what was written down of a function of JAX, step by step, on arrays of plain numbers.
// An array is { kind, shape, data }; a key of random numbers is one 64-bit number.

const TYPES = {
  float32: Float32Array, int32: Int32Array, uint32: Uint32Array, bool: Uint8Array,
  int8: Int8Array, uint8: Uint8Array, int16: Int16Array, uint16: Uint16Array, key: BigUint64Array,
};

const sizeOf = (shape) => shape.reduce((size, n) => size * n, 1);
const newArray = (kind, shape, data) => ({ kind, shape, data: data || new TYPES[kind](sizeOf(shape)) });

function stridesOf(shape) {
  const strides = new Array(shape.length);
  let stride = 1;
  for (let d = shape.length - 1; d >= 0; d--) {
    strides[d] = stride;
    stride *= shape[d];
  }
  return strides;
}

// Calls `visit(index, position)` for every place of an array; `index` is used again.
function forEach(shape, visit) {
  const index = new Array(shape.length).fill(0);
  const size = sizeOf(shape);
  for (let position = 0; position < size; position++) {
    visit(index, position);
    for (let d = shape.length - 1; d >= 0; d--) {
      if (++index[d] < shape[d]) break;
      index[d] = 0;
    }
  }
}

function readArray({ kind, shape, data }) {
  const bytes = Uint8Array.from(atob(data), (letter) => letter.charCodeAt(0));
  if (kind !== "key") return newArray(kind, shape, new TYPES[kind](bytes.buffer));
  return wrapKeys(new Uint32Array(bytes.buffer), shape);
}

function wrapKeys(words, shape) {
  const keys = newArray("key", shape);
  for (let i = 0; i < keys.data.length; i++) keys.data[i] = (BigInt(words[2 * i]) << 32n) | BigInt(words[2 * i + 1]);
  return keys;
}

const keyWords = (key) => [Number(key >> 32n), Number(key & 0xffffffffn)];

// Threefry-2x32 with 20 rounds (Salmon et al., 2011).
function threefry([k0, k1], c0, c1) {
  const keys = [k0, k1, k0 ^ k1 ^ 0x1bd11bda];
  const rotations = [[13, 15, 26, 6], [17, 29, 16, 24]];
  let [a, b] = [(c0 + k0) | 0, (c1 + k1) | 0];
  for (let group = 0; group < 5; group++) {
    for (const r of rotations[group % 2]) {
      a = (a + b) | 0;
      b = ((b << r) | (b >>> (32 - r))) ^ a;
    }
    a = (a + keys[(group + 1) % 3]) | 0;
    b = (b + keys[(group + 2) % 3] + group + 1) | 0;
  }
  return [a >>> 0, b >>> 0];
}

const popcount = (x) => {
  let count = 0;
  for (let rest = x >>> 0; rest; rest &= rest - 1) count++;
  return count;
};
const isFloat = (kind) => kind === "float32";
// To the even neighbour where both are as near.
const roundEven = (x) => {
  const low = Math.floor(x);
  const rest = x - low;
  return rest < 0.5 || (rest === 0.5 && low % 2 === 0) ? low : low + 1;
};
const lowest = { int32: -(2 ** 31), int16: -(2 ** 15), int8: -(2 ** 7), uint32: 2 ** 32 - 1, uint16: 2 ** 16 - 1, uint8: 255, bool: 1 };
const bits = { int8: 8, uint8: 8, int16: 16, uint16: 16, int32: 32, uint32: 32 };

const UNARY = {
  abs: Math.abs, ceil: Math.ceil, floor: Math.floor, exp: Math.exp, exp2: (x) => 2 ** x, expm1: Math.expm1,
  log: Math.log, log1p: Math.log1p, sin: Math.sin, cos: Math.cos, tan: Math.tan, tanh: Math.tanh,
  logistic: (x) => 1 / (1 + Math.exp(-x)), sqrt: Math.sqrt, rsqrt: (x) => 1 / Math.sqrt(x), sign: Math.sign,
  neg: (x) => -x, not: (x, kind) => (kind === "bool" ? 1 - x : ~x), is_finite: (x) => Number.isFinite(x),
  population_count: popcount, clz: (x, kind) => Math.clz32(x) - (32 - bits[kind]),
  square: (x, kind) => (isFloat(kind) ? x * x : Math.imul(x, x)),
};
const order = (x) => (Object.is(x, -0) ? -5e-324 : x); // minus zero is below zero in a total order
const BINARY = {
  add: (x, y) => x + y, sub: (x, y) => x - y,
  mul: (x, y, kind) => (isFloat(kind) ? x * y : Math.imul(x, y)),
  div: (x, y, kind) => (isFloat(kind) ? x / y : y === 0 ? -1 : Math.trunc(x / y)),
  rem: (x, y, kind) => (isFloat(kind) || y !== 0 ? x % y : x),
  max: (x, y) => (Number.isNaN(x) || Number.isNaN(y) ? NaN : Math.max(x, y)),
  min: (x, y) => (Number.isNaN(x) || Number.isNaN(y) ? NaN : Math.min(x, y)),
  pow: (x, y, kind) => (isFloat(kind) ? x ** y : integerPower(x, y)),
  and: (x, y) => x & y, or: (x, y) => x | y, xor: (x, y) => x ^ y,
  eq: (x, y) => x === y, ne: (x, y) => x !== y, lt: (x, y) => x < y, le: (x, y) => x <= y, gt: (x, y) => x > y, ge: (x, y) => x >= y,
  lt_to: (x, y) => order(x) < order(y), le_to: (x, y) => order(x) <= order(y),
  shift_left: (x, y, kind) => (y >>> 0 >= bits[kind] ? 0 : x << y),
  shift_right_logical: (x, y, kind) =>
    y >>> 0 >= bits[kind] ? 0 : (bits[kind] === 32 ? x >>> 0 : x & (2 ** bits[kind] - 1)) >>> y,
  shift_right_arithmetic: (x, y, kind) => x >> Math.min(y >>> 0, bits[kind] - 1),
};

function integerPower(x, y) {
  let power = 1;
  for (let k = 0; k < y; k++) power = Math.imul(power, x);
  return power;
}

// The value of `gather` beyond the array, and whether a start is beyond it.
function clampStart(start, shape, sizes, mode) {
  let outside = false;
  for (let d = 0; d < shape.length; d++) {
    const last = shape[d] - sizes[d];
    if (start[d] < 0 || start[d] > last) outside = true;
    if (mode === "clip" || mode === "promise_in_bounds") start[d] = Math.max(0, Math.min(last, start[d]));
  }
  return outside && mode === "fill_or_drop";
}

const REDUCTIONS = {
  reduce_sum: [0, (x, y) => x + y], reduce_prod: [1, (x, y) => x * y],
  reduce_and: [1, (x, y) => x & y], reduce_or: [0, (x, y) => x | y],
  reduce_max: [null, BINARY.max], reduce_min: [null, BINARY.min],
};
const CUMULATIVE = {
  cumsum: (x, y) => x + y, cumprod: (x, y) => x * y, cummax: BINARY.max, cummin: BINARY.min,
};

function reduce(name, x, out, { axes }) {
  const [first, combine] = REDUCTIONS[name];
  // Sums are gathered in double precision.
  const found = new Array(out.data.length).fill(first);
  const kept = x.shape.map((_, d) => d).filter((d) => !axes.includes(d));
  const strides = stridesOf(out.shape);
  forEach(x.shape, (index, position) => {
    const to = kept.reduce((sum, d, k) => sum + index[d] * strides[k], 0);
    found[to] = found[to] === null ? x.data[position] : combine(found[to], x.data[position]);
  });
  out.data.set(found);
}

function argBest(x, out, { axes: [axis] }, isBetter) {
  const kept = x.shape.map((_, d) => d).filter((d) => d !== axis);
  const strides = stridesOf(out.shape);
  const best = new Array(out.data.length).fill(null);
  forEach(x.shape, (index, position) => {
    const to = kept.reduce((sum, d, k) => sum + index[d] * strides[k], 0);
    const value = x.data[position];
    if (best[to] === null || isBetter(value, best[to]) || (Number.isNaN(value) && !Number.isNaN(best[to]))) {
      best[to] = value;
      out.data[to] = index[axis];
    }
  });
}

function dotGeneral(x, y, out, { dimension_numbers: [[xContract, yContract], [xBatch, yBatch]] }) {
  const [xs, ys] = [stridesOf(x.shape), stridesOf(y.shape)];
  const xFree = x.shape.map((_, d) => d).filter((d) => !xContract.includes(d) && !xBatch.includes(d));
  const yFree = y.shape.map((_, d) => d).filter((d) => !yContract.includes(d) && !yBatch.includes(d));
  const inner = xContract.map((d) => x.shape[d]);
  const steps = [];
  forEach(inner, (index) =>
    steps.push([
      index.reduce((sum, i, k) => sum + i * xs[xContract[k]], 0),
      index.reduce((sum, i, k) => sum + i * ys[yContract[k]], 0),
    ]),
  );
  forEach(out.shape, (index, position) => {
    let [from, by] = [0, 0];
    xBatch.forEach((d, k) => (from += index[k] * xs[d]));
    yBatch.forEach((d, k) => (by += index[k] * ys[d]));
    xFree.forEach((d, k) => (from += index[xBatch.length + k] * xs[d]));
    yFree.forEach((d, k) => (by += index[xBatch.length + xFree.length + k] * ys[d]));
    let sum = 0;
    for (const [a, b] of steps) sum += x.data[from + a] * y.data[by + b];
    out.data[position] = sum;
  });
}

function convolve(x, kernel, out, params) {
  const { lhs_spec: xSpec, rhs_spec: kSpec, out_spec: oSpec } = params.dimension_numbers;
  const { window_strides: strides, padding, lhs_dilation, rhs_dilation, feature_group_count: groups } = params;
  const [xs, ks] = [stridesOf(x.shape), stridesOf(kernel.shape)];
  const window = kSpec.slice(2).map((d) => kernel.shape[d]);
  const channels = kernel.shape[kSpec[1]];
  const perGroup = kernel.shape[kSpec[0]] / groups;
  forEach(out.shape, (index, position) => {
    const feature = index[oSpec[1]];
    const firstChannel = Math.floor(feature / perGroup) * channels;
    let sum = 0;
    forEach(window, (offset) => {
      let from = index[oSpec[0]] * xs[xSpec[0]];
      let by = feature * ks[kSpec[0]];
      for (let s = 0; s < window.length; s++) {
        const place = index[oSpec[2 + s]] * strides[s] - padding[s][0] + offset[s] * rhs_dilation[s];
        const source = place / lhs_dilation[s];
        if (!Number.isInteger(source) || source < 0 || source >= x.shape[xSpec[2 + s]]) return;
        from += source * xs[xSpec[2 + s]];
        by += offset[s] * ks[kSpec[2 + s]];
      }
      for (let c = 0; c < channels; c++)
        sum += x.data[from + (firstChannel + c) * xs[xSpec[1]]] * kernel.data[by + c * ks[kSpec[1]]];
    });
    out.data[position] = sum;
  });
}

function gather(x, indices, out, { dimension_numbers: dims, slice_sizes: sizes, mode }) {
  const [xs, is] = [stridesOf(x.shape), stridesOf(indices.shape)];
  const batch = out.shape.map((_, d) => d).filter((d) => !dims.offset_dims.includes(d));
  const window = x.shape.map((_, d) => d).filter((d) => !dims.collapsed_slice_dims.includes(d) && !dims.operand_batching_dims.includes(d));
  const beyond = isFloat(x.kind) ? NaN : lowest[x.kind];
  forEach(out.shape, (index, position) => {
    let at = 0;
    batch.forEach((d, k) => (at += index[d] * is[k]));
    const start = new Array(x.shape.length).fill(0);
    dims.start_index_map.forEach((d, k) => (start[d] = indices.data[at + k]));
    dims.operand_batching_dims.forEach((d, k) => (start[d] = index[batch[dims.start_indices_batching_dims[k]]]));
    if (clampStart(start, x.shape, sizes, mode)) {
      out.data[position] = beyond;
      return;
    }
    window.forEach((d, k) => (start[d] += index[dims.offset_dims[k]]));
    out.data[position] = x.data[start.reduce((sum, i, d) => sum + i * xs[d], 0)];
  });
}

function scatter(x, indices, updates, out, { dimension_numbers: dims, mode }, combine) {
  out.data.set(x.data);
  const [xs, is] = [stridesOf(x.shape), stridesOf(indices.shape)];
  const batch = updates.shape.map((_, d) => d).filter((d) => !dims.update_window_dims.includes(d));
  const window = x.shape.map((_, d) => d).filter((d) => !dims.inserted_window_dims.includes(d) && !dims.operand_batching_dims.includes(d));
  const sizes = x.shape.map(() => 1);
  window.forEach((d, k) => (sizes[d] = updates.shape[dims.update_window_dims[k]]));
  forEach(updates.shape, (index, position) => {
    let at = 0;
    batch.forEach((d, k) => (at += index[d] * is[k]));
    const start = new Array(x.shape.length).fill(0);
    dims.scatter_dims_to_operand_dims.forEach((d, k) => (start[d] = indices.data[at + k]));
    dims.operand_batching_dims.forEach((d, k) => (start[d] = index[batch[dims.scatter_indices_batching_dims[k]]]));
    if (clampStart(start, x.shape, sizes, mode)) return;
    window.forEach((d, k) => (start[d] += index[dims.update_window_dims[k]]));
    const to = start.reduce((sum, i, d) => sum + i * xs[d], 0);
    out.data[to] = combine(out.data[to], updates.data[position]);
  });
}

function sort(inputs, outs, { dimension, num_keys }) {
  const shape = inputs[0].shape;
  const strides = stridesOf(shape);
  const length = shape[dimension];
  const lines = shape.map((n, d) => (d === dimension ? 1 : n));
  forEach(lines, (index) => {
    const from = index.reduce((sum, i, d) => sum + i * strides[d], 0);
    const places = Array.from({ length }, (_, k) => from + k * strides[dimension]);
    const sorted = [...places].sort((a, b) => {
      for (let k = 0; k < num_keys; k++) {
        const [x, y] = [inputs[k].data[a], inputs[k].data[b]];
        if (x < y || (Number.isNaN(y) && !Number.isNaN(x))) return -1;
        if (x > y || (Number.isNaN(x) && !Number.isNaN(y))) return 1;
      }
      return a - b;
    });
    inputs.forEach((input, n) => places.forEach((to, k) => (outs[n].data[to] = input.data[sorted[k]])));
  });
}

// What moves numbers without changing them: for every place of the result, where it comes from.
function move(x, out, from) {
  forEach(out.shape, (index, position) => (out.data[position] = x.data[from(index)]));
}

// The numbers of an array as one of another shape, in which its axes of one are repeated.
function spread(x, shape) {
  const size = sizeOf(shape);
  if (x.data.length === size) return x.data;
  const data = new TYPES[x.kind](size);
  if (x.data.length === 1) return data.fill(x.data[0]);
  const strides = stridesOf(x.shape).map((stride, d) => (x.shape[d] === 1 ? 0 : stride));
  move(x, { shape, data }, (index) => index.reduce((sum, i, d) => sum + i * strides[d], 0));
  return data;
}

function join(inputs, out, axis) {
  const strides = stridesOf(out.shape);
  let offset = 0;
  for (const input of inputs) {
    forEach(input.shape, (index, position) => {
      const to = index.reduce((sum, i, d) => sum + (d === axis ? i + offset : i) * strides[d], 0);
      out.data[to] = input.data[position];
    });
    offset += input.shape[axis];
  }
}

function slices(x, starts, sizes) {
  return starts.map((start, d) => Math.max(0, Math.min(x.shape[d] - sizes[d], Number(start.data[0]))));
}

const OPERATIONS = {
  select_n([which, ...cases], [out]) {
    const [chosen, from] = [spread(which, out.shape), cases.map((x) => spread(x, out.shape))];
    for (let i = 0; i < out.data.length; i++) out.data[i] = from[chosen[i]][i];
  },
  clamp([low, x, high], [out]) {
    const [from, to] = [spread(low, out.shape), spread(high, out.shape)];
    for (let i = 0; i < out.data.length; i++) out.data[i] = Math.max(from[i], Math.min(to[i], x.data[i]));
  },
  integer_pow([x], [out], { y }) {
    for (let i = 0; i < out.data.length; i++) out.data[i] = isFloat(x.kind) ? x.data[i] ** y : integerPower(x.data[i], y);
  },
  round([x], [out]) {
    for (let i = 0; i < out.data.length; i++) out.data[i] = roundEven(x.data[i]);
  },
  convert_element_type([x], [out]) {
    const toWhole = isFloat(x.kind) && !isFloat(out.kind) && out.kind !== "bool";
    const size = 2 ** (bits[out.kind] || 0);
    const [low, high] = out.kind[0] === "u" ? [0, size - 1] : [-size / 2, size / 2 - 1];
    for (let i = 0; i < out.data.length; i++) {
      const value = x.data[i];
      if (out.kind === "bool") out.data[i] = value !== 0 ? 1 : 0;
      else if (!toWhole) out.data[i] = value;
      else out.data[i] = Math.max(low, Math.min(high, Math.trunc(value) || 0));
    }
  },
  bitcast_convert_type([x], [out]) {
    out.data = new TYPES[out.kind](x.data.slice().buffer);
  },
  reshape([x], [out]) {
    out.data.set(x.data);
  },
  broadcast_in_dim([x], [out], { broadcast_dimensions: dims }) {
    const strides = stridesOf(x.shape).map((stride, d) => (x.shape[d] === 1 ? 0 : stride));
    move(x, out, (index) => dims.reduce((sum, to, d) => sum + index[to] * strides[d], 0));
  },
  transpose([x], [out], { permutation }) {
    const strides = stridesOf(x.shape);
    move(x, out, (index) => permutation.reduce((sum, d, k) => sum + index[k] * strides[d], 0));
  },
  rev([x], [out], { dimensions }) {
    const strides = stridesOf(x.shape);
    move(x, out, (index) => index.reduce((sum, i, d) => sum + (dimensions.includes(d) ? x.shape[d] - 1 - i : i) * strides[d], 0));
  },
  slice([x], [out], { start_indices, strides: every }) {
    const strides = stridesOf(x.shape);
    move(x, out, (index) => index.reduce((sum, i, d) => sum + (start_indices[d] + i * (every ? every[d] : 1)) * strides[d], 0));
  },
  dynamic_slice([x, ...starts], [out], { slice_sizes }) {
    const [strides, from] = [stridesOf(x.shape), slices(x, starts, slice_sizes)];
    move(x, out, (index) => index.reduce((sum, i, d) => sum + (from[d] + i) * strides[d], 0));
  },
  dynamic_update_slice([x, update, ...starts], [out]) {
    const [strides, from] = [stridesOf(x.shape), slices(x, starts, update.shape)];
    out.data.set(x.data);
    forEach(update.shape, (index, position) => {
      out.data[index.reduce((sum, i, d) => sum + (from[d] + i) * strides[d], 0)] = update.data[position];
    });
  },
  pad([x, filler], [out], { padding_config }) {
    out.data.fill(filler.data[0]);
    const strides = stridesOf(out.shape);
    forEach(x.shape, (index, position) => {
      const to = index.map((i, d) => padding_config[d][0] + i * (padding_config[d][2] + 1));
      if (to.some((i, d) => i < 0 || i >= out.shape[d])) return;
      out.data[to.reduce((sum, i, d) => sum + i * strides[d], 0)] = x.data[position];
    });
  },
  concatenate: (inputs, [out], { dimension }) => join(inputs, out, dimension),
  stack(inputs, [out], { axis }) {
    const shape = inputs[0].shape.slice();
    shape.splice(axis, 0, 1);
    join(inputs.map((input) => ({ ...input, shape })), out, axis);
  },
  unstack([x], outs, { axis }) {
    const strides = stridesOf(x.shape);
    const rest = strides.filter((_, d) => d !== axis);
    outs.forEach((out, k) => move(x, out, (index) => index.reduce((sum, i, d) => sum + i * rest[d], k * strides[axis])));
  },
  split([x], outs, { axis }) {
    const strides = stridesOf(x.shape);
    let offset = 0;
    for (const out of outs) {
      move(x, out, (index) => index.reduce((sum, i, d) => sum + (d === axis ? i + offset : i) * strides[d], 0));
      offset += out.shape[axis];
    }
  },
  tile([x], [out]) {
    const strides = stridesOf(x.shape);
    move(x, out, (index) => index.reduce((sum, i, d) => sum + (i % x.shape[d]) * strides[d], 0));
  },
  iota: (_, [out], { dimension }) => forEach(out.shape, (index, position) => (out.data[position] = index[dimension])),
  argmax: ([x], [out], params) => argBest(x, out, params, (a, b) => a > b),
  argmin: ([x], [out], params) => argBest(x, out, params, (a, b) => a < b),
  dot_general: ([x, y], [out], params) => dotGeneral(x, y, out, params),
  conv_general_dilated: ([x, y], [out], params) => convolve(x, y, out, params),
  gather: ([x, indices], [out], params) => gather(x, indices, out, params),
  scatter: ([x, indices, updates], [out], params) => scatter(x, indices, updates, out, params, (_, y) => y),
  scatter_add: ([x, indices, updates], [out], params) => scatter(x, indices, updates, out, params, (a, b) => a + b),
  sort,
  random_wrap([x], [out]) {
    out.data = wrapKeys(x.data, out.shape).data;
  },
  random_unwrap([x], [out]) {
    x.data.forEach((key, i) => out.data.set(keyWords(key), 2 * i));
  },
  random_fold_in([keys, numbers], [out]) {
    for (let i = 0; i < out.data.length; i++) {
      const [a, b] = threefry(keyWords(keys.data[keys.data.length === 1 ? 0 : i]), 0, numbers.data[numbers.data.length === 1 ? 0 : i]);
      out.data[i] = (BigInt(a) << 32n) | BigInt(b);
    }
  },
  random_split([keys], [out], { shape }) {
    const size = sizeOf(shape);
    for (let i = 0; i < out.data.length; i++) {
      const [a, b] = threefry(keyWords(keys.data[Math.floor(i / size)]), 0, i % size);
      out.data[i] = (BigInt(a) << 32n) | BigInt(b);
    }
  },
  random_bits([keys], [out], { shape, bit_width }) {
    const size = sizeOf(shape);
    for (let i = 0; i < out.data.length; i++) {
      const [a, b] = threefry(keyWords(keys.data[Math.floor(i / size)]), 0, i % size);
      out.data[i] = bit_width === 32 ? a ^ b : (a ^ b) & (2 ** bit_width - 1);
    }
  },
};
for (const name of Object.keys(REDUCTIONS)) OPERATIONS[name] = ([x], [out], params) => reduce(name, x, out, params);
for (const [name, combine] of Object.entries(CUMULATIVE))
  OPERATIONS[name] = ([x], [out], { axis, reverse }) => {
    const stride = stridesOf(x.shape)[axis];
    const found = Array.from(x.data);
    const places = [];
    forEach(x.shape, (index, position) => index[axis] > 0 && places.push(position));
    if (reverse) for (const place of places.reverse()) found[place - stride] = combine(found[place - stride], found[place]);
    else for (const place of places) found[place] = combine(found[place], found[place - stride]);
    out.data.set(found);
  };

const CONTROL = {
  cond(values, [which, ...inputs], { branches }) {
    const branch = branches[Math.max(0, Math.min(branches.length - 1, Number(which.data[0])))];
    return follow(branch, inputs, values);
  },
  while(values, inputs, { cond, body, consts: [numCond, numBody] }) {
    const [forCond, forBody] = [inputs.slice(0, numCond), inputs.slice(numCond, numCond + numBody)];
    let carry = inputs.slice(numCond + numBody);
    while (follow(cond, [...forCond, ...carry], values)[0].data[0]) carry = follow(body, [...forBody, ...carry], values);
    return carry;
  },
  scan(values, inputs, { body, reverse, num_consts, num_carry, length }, kinds) {
    const [consts, each] = [inputs.slice(0, num_consts), inputs.slice(num_consts + num_carry)];
    let carry = inputs.slice(num_consts, num_consts + num_carry);
    const outs = kinds.slice(num_carry).map(([kind, shape]) => newArray(kind, shape));
    for (let k = 0; k < length; k++) {
      const t = reverse ? length - 1 - k : k;
      const now = each.map((x) => {
        const size = x.data.length / length;
        return newArray(x.kind, x.shape.slice(1), x.data.slice(t * size, (t + 1) * size));
      });
      const found = follow(body, [...consts, ...carry, ...now], values);
      carry = found.slice(0, num_carry);
      found.slice(num_carry).forEach((y, n) => outs[n].data.set(y.data, t * y.data.length));
    }
    return [...carry, ...outs];
  },
};

function follow(body, inputs, values) {
  body.in.forEach((number, k) => (values[number] = inputs[k]));
  for (const [name, from, to, kinds, params] of body.steps) {
    const read = from.map((number) => values[number]);
    if (CONTROL[name]) {
      CONTROL[name](values, read, params, kinds).forEach((y, k) => (values[to[k]] = y));
      continue;
    }
    const outs = kinds.map(([kind, shape]) => newArray(kind, shape));
    const [x, y] = read;
    const [{ data }] = outs;
    if (UNARY[name]) for (let i = 0; i < data.length; i++) data[i] = UNARY[name](x.data[i], x.kind);
    else if (BINARY[name]) {
      const [a, b] = [spread(x, outs[0].shape), spread(y, outs[0].shape)];
      for (let i = 0; i < data.length; i++) data[i] = BINARY[name](a[i], b[i], x.kind);
    } else OPERATIONS[name](read, outs, params);
    outs.forEach((out, k) => (values[to[k]] = out));
  }
  return body.out.map((number) => values[number]);
}

// A function of lists of arrays.
function readProgram(program) {
  const values = [];
  for (const [number, array] of program.constants) values[number] = readArray(array);
  return (inputs) => follow(program, inputs, values);
}
