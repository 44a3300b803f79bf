"""Functions of two tensors and a number, by what they do; a line is the body of one.

In a body `\\n` begins a new line. Names in capitals are those of `behavior_world`.
"""

from __future__ import annotations

FUNCTIONS: dict[str, str] = {
    "views and results of operators": r"""
return x.t()
return x.view(-1)
return x.reshape(-1)
return x.reshape(-1), x.reshape(x.shape)
return x.permute(1, 0), x.permute(0, 1)
return x.expand(2, *x.shape)
return x.unfold(0, 1, 1)
return x.diagonal()
return x.chunk(2, 1)
return x[0], x[:, 1], x[..., None], x[None]
return x[:], x[...], x[()]
return x.contiguous()
return x.contiguous(), x.t().contiguous()
return x.to(torch.float32), x.float()
return x.to(torch.float64), x.double()
return x.type_as(y), x.to(y)
return x.detach(), x.detach()
return x.data
return x.clone(), x.clone(memory_format=torch.contiguous_format)
return torch.atleast_2d(x), torch.atleast_3d(x), torch.atleast_1d(x, y)
return torch.broadcast_tensors(x, y)
return x.view(x.dtype)
return x.view(torch.int32)
return x.conj(), x.resolve_conj(), x.resolve_neg()
return torch.view_as_complex(x[:, :2].contiguous())
return torch.complex(x, y).imag, torch.complex(x, y).conj()
return torch.complex(x, y).conj().imag
return x.tile(1), x.tile(1, 1), x.repeat(1, 1)
return x.hsplit(1), x.vsplit(1), x.tensor_split(2)
return torch.meshgrid(x[0], y[0], indexing='ij')
return torch.hstack([x]), torch.cat([x]), torch.stack([x])[0]
return torch.block_diag(x), torch.cartesian_prod(x[0]), torch.combinations(x[0], 1)
return x.sum_to_size(x.shape), x.sum_to_size(1, x.shape[1])
return x.movedim(0, 0), x.transpose(0, 0), x.flatten(0, 0), x.rot90(0)
return x.roll(0), x.flip(()), x.flip(0)
return torch.einsum('ij->ji', x), torch.einsum('ij->ij', x)
return x.as_strided((2,), (1,))
return torch.as_strided(x.clone(), (2, 2), (1, 1))
return x.unflatten(1, (1, -1)), x.unflatten(0, (-1, 1))
return x.masked_fill(x > 0, s), x.where(x > 0, y)
return torch.nn.functional.pad(x, (0, 0)), torch.nn.functional.pad(x, (1, 1))
return torch.nn.functional.dropout(x, 0.5, False), torch.nn.functional.alpha_dropout(x, 0.5, False)
return torch.nn.functional.dropout(x, 0.0, True)
return torch.nn.functional.interpolate(x[None, None], scale_factor=1)
return torch.nn.functional.adaptive_avg_pool1d(x, x.shape[1])
return x.softmax(0), x.log_softmax(1), x.cumsum(0), x.sort(0), x.topk(1, 0)
return x.max(0), x.min(1), x.median(0), x.kthvalue(1, 0)
return torch.linalg.qr(x), torch.linalg.svdvals(x)
return x.new_zeros(2), x.new_empty(0), x.new_ones(x.shape), x.new_full((2,), s),\
x.new_tensor([1, 2])
return torch.empty_like(x).fill_(1), torch.zeros_like(x), torch.full_like(x, s)
return torch.empty_strided(x.shape, x.stride()).fill_(2)
return torch.zeros_like(x, memory_format=torch.contiguous_format), torch.zeros_like(x.t())
return x * y, x.t() * y.t(), x + y.t().t(), x * x.stride(0)
return torch.where(x > 0, x, y), torch.maximum(x, y), torch.lerp(x, y, 0.5)
return x.to(memory_format=torch.preserve_format), x.to(x.dtype, copy=True)
return torch.asarray(x), torch.as_tensor(x), torch.tensor(s)
return torch.as_tensor([1.0, 2.0]), torch.asarray(s), torch.scalar_tensor(s)
return torch.from_numpy(numpy.ones(2)), torch.tensor(numpy.float32(2)),\
torch.as_tensor(numpy.ones(3))
return x + numpy.float64(2), x * numpy.int64(3), x.mul(numpy.float32(1.5))
return x.sum(), x.mean(0, keepdim=True), x.amax(), x.norm(), x.var(0), x.std()
return x / 2, x // 2, x % 2, x ** 2, 2 ** x, 2 / x, 2 - x, -x, abs(x)
return x > 0, x == y, x != 1, ~(x > 0), (x > 0) & (y > 0), (x > 0) ^ True
return x @ y.t(), torch.mm(x, y.t()), x.matmul(y[0]), torch.outer(x[0], y[0]), x.addmm(x, y[:,\
:1] @ y[:1])
""",
    "writes": r"""
x.add_(1); return x
x.add_(1); return x, y
x[0] = s; return x * 2
x[0] = y[1]; return x[0]
x[x > 0] = 0; return None
x[:, 1] += 1; return x.sum()
x.t().mul_(2); return x
x.view(-1)[0] = 7; return y + x
x.copy_(y); y.zero_(); return x
torch.add(x, y, out=x); return x
z = torch.empty(0); torch.add(x, y, out=z); return z
z = x.new_empty(x.shape); torch.mul(x, y, out=z); return z, z.t()
x += y; return x
x *= x; y -= x; return x, y
x.transpose_(0, 1); return x
x.t_(); return x
x.unsqueeze_(0); return x
x.squeeze_(); return x
x.resize_(3, 2); return x
x.set_(y); return x
x.swapaxes_(0, 1); return x * 2
torch.nn.functional.relu(x, inplace=True); return x
torch.nn.functional.relu_(x); return y
x.fill_(s); return x
x.fill_(y.sum()); return y
x.index_put_((torch.tensor([0]),), y[0]); return x
x.index_add_(0, torch.tensor([0, 1]), y[:2]); return x
x.scatter_(1, torch.zeros(2, 1, dtype=torch.int64), 3.0); return x
x.masked_fill_(y > 0, s); return x
x.clamp_(0, 1); x.neg_(); return x
x.requires_grad_(); return x * 2
x.requires_grad_(False); return x
x.requires_grad = True; return x
x.detach_(); return x
x.detach().add_(1); return x
x.data.add_(1); return x
x.data = y; return x
z = x.data; z += 1; return z, x
z = x.clone(); z[0] = 1; z.t().add_(y.t()); return z
z = x.t(); z.add_(1); return z, x
a, b = x.unbind()[:2]; a.add_(1); return x
a, b = x.split(1)[:2]; a.copy_(b); return b
z = x[:1]; x.mul_(2); return z
z = x.expand(2, *x.shape); x.mul_(2); return z
z = x.detach(); x.mul_(2); return z
z = x.contiguous(); z.add_(1); return x, z
z = x.reshape(-1); z.add_(1); return x, z
z = x.to(torch.float32); z.add_(1); return x, z
torch._foreach_add_([x, y], 1.0); return x
torch._foreach_mul_([x], [y]); return x
with torch.no_grad(): x.add_(1); return x
with torch.no_grad(): x.copy_(y); return x * y
x.bernoulli_(0.5); return x
x.normal_(); y.uniform_(); return x + y
x.exponential_(); return x
torch.nn.init.xavier_uniform_(x); return x
torch.nn.init.zeros_(x); return x
x.grad = y; return x
x.grad_fn; return x
x.tag = 3; return x
x.name = 'a'; return x
x.retain_grad(); return x * 2
x.register_hook(print); return x
x.untyped_storage(); return x
x.storage_offset(); return x
x.is_leaf; return x
x.backward(); return x
x.sum().backward(); return x.grad
setattr(x, 'k', 1); return x
x.swap_ = 1; del x.swap_; return x
x.share_memory_(); return x
x.__setitem__(0, 1); return x
x.t()[0] = y.t()[1]; return x
x[..., 0], x[..., 1] = x[..., 1].clone(), x[..., 0].clone(); return x
x.swapaxes(0, 1).copy_(y.t()); return x
x.index_fill_(0, torch.tensor([0]), s); x.index_copy_(0, torch.tensor([1]), y[:1]); return x
x.addcmul_(y, y); x.lerp_(y, 0.5); return x.square_()
x.cumsum_(0); return x
x.sort(0)[0].add_(1); return x
x.diagonal().fill_(5); return x
x.real.add_(1); return x
x.unfold(1, 2, 1)[0].add_(1); return x
y = x; y.add_(1); return y is x, x
x.sub_(x.mean()); x.div_(x.std()); return x
torch.exp_(x); torch.sigmoid_(y); return x.sum() + y.sum()
x.clone().add_(1); return x
x.masked_scatter_(y > 0, y); return x
x.put_(torch.tensor([0]), y.view(-1)[:1].clone()); return x
x.tril_(); x.triu_(); return x
x.geometric_(0.5); x.random_(5); return x
torch.manual_seed(0); return x + torch.rand(2, 1)
""",
    "random numbers": r"""
return torch.rand(2), torch.randn(2), torch.randint(5, (2,))
return torch.rand_like(x), torch.randn_like(x)
return torch.randperm(4), torch.rand(x.shape).t()
return torch.nn.functional.dropout(x, 0.5)
return torch.nn.functional.dropout(x.t(), 0.5).t()
return torch.bernoulli(x.sigmoid()), torch.multinomial(x.softmax(1), 1)
return torch.normal(x, 1.0), torch.normal(0.0, 1.0, (2,)), torch.poisson(x.abs())
return torch.distributions.Normal(0.0, 1.0).sample((2,)) + x[0, 0]
return torch.distributions.Categorical(logits=x).sample()
return torch.nn.functional.gumbel_softmax(x), torch.nn.functional.rrelu(x, training=True)
return torch.get_rng_state()
return torch.initial_seed() * x
return x * random.random()
return x + numpy.random.rand()
g = torch.Generator().manual_seed(s); return torch.rand(2, generator=g)
g = torch.Generator(); return torch.rand(2, generator=g) + x[0, 0]
g = torch.Generator(); g.manual_seed(1); return torch.randn(2, generator=g) * x[0, 0]
with torch.random.fork_rng(): return torch.rand(2) + x[0, 0]
return torch.seed()
return torch.rand(2, dtype=torch.float64), torch.rand(()), torch.rand(0)
return [torch.rand(1) for _ in range(s if type(s) is int else 1)], x
return torch.nn.functional.feature_alpha_dropout(x, 0.5, True), torch.rand(1)
return torch.nn.functional.scaled_dot_product_attention(x[None], y[None], y[None], dropout_p=0.5)
return torch.randn(2, 3, requires_grad=True)
return torch.empty(2).uniform_(), torch.empty(2).log_normal_(), torch.empty(2).cauchy_()
return torch.pca_lowrank(x, q=1)[1].abs()
return torch.rand(2, 2, out=torch.empty(2, 2))
z = x.clone(); z.bernoulli_(0.3); return z, torch.rand(1)
""",
    "results of all kinds": r"""
return x.shape, x.size(), x.stride(), x.dim(), x.numel(), len(x)
return x.shape
return x.shape[0], x.size(1), x.nbytes, x.itemsize, x.element_size()
return x.dtype, x.device, x.layout, x.is_contiguous(), x.requires_grad
return x.is_floating_point(), x.is_complex(), x.is_cuda, x.is_inference(), x.is_conj(), x.is_neg()
return x.type(), type(x), type(x).__name__
return isinstance(x, torch.nn.Parameter), isinstance(x, torch.Tensor)
return x is y, x.shape == y.shape, x.dtype == y.dtype, id(x) == id(y)
return x, x, y
return [x, (x, {'k': y}), None]
return {'b': x, 'a': y}
return collections.OrderedDict(b=x, a=y)
return collections.defaultdict(list, k=x)
return collections.namedtuple('P', 'a b')(x, y)
return Point(x, y)
return Data(x, s)
return types.SimpleNamespace(x=x)
return {x.shape: x}
return {1: x, 'k': y, None: s, (1, 2): x}
return {x, y}
return frozenset([1, 2])
return (t for t in (x, y))
return iter([x])
return map(torch.neg, [x])
return {'a': x}.values()
return range(x.shape[0]), slice(0, 1), ...
return ()
return None
return s
return s, x
return str(s), repr(s), s + 1 if type(s) is not str else s
return 1, 1.0, True, -0.0, float('nan'), 1j, b'a', 'a'
return torch.float32, torch.device('cpu'), torch.strided, torch.contiguous_format
return torch.finfo(x.dtype), torch.iinfo(torch.int32)
return torch.Size([1, 2]), [torch.Size([3])], x.shape[1:]
return tuple(x.shape), list(x.shape), tuple(x.size())
return x.max(0)
return torch.linalg.eigh(x @ x.t()).eigenvalues, torch.topk(x, 1)
return x.max(0).values, x.sort(1)._asdict() if False else x.sort(1).indices
return numpy.float32(2.0), numpy.array([1, 2])
return numpy.ones(2)
return f
return NET
return lambda: x
return functools.partial(torch.add, x)
return torch.nn.Parameter(x)
return torch.nn.Parameter(x.detach().clone())
return torch.nn.Parameter(torch.ones(2)), torch.nn.Buffer(torch.ones(2))
return torch.nn.Parameter(x, requires_grad=False)
return W, W * x[0, 0]
return W, W.t(), W.detach()
return W.data, W[0]
return fractions.Fraction(1, 2), decimal.Decimal('1.5')
return datetime.date(2020, 1, 1)
return Color.RED
return Color.RED.value * x, Color.RED
return x.to_sparse()
return torch.quantize_per_tensor(x, 0.1, 0, torch.qint8)
return torch.empty(2, device='meta')
return x.to('meta')
return torch.zeros(2).to_sparse(), x
return torch.nn.utils.rnn.pack_sequence([x])
return memoryview(b'ab')
return bytearray(b'ab')
return Exception('x')
return NotImplemented
return torch.Generator()
return x.numel() if x.shape[0] > 2 else x
yield x; yield y
a, *b = x; return a, b
return x.__class__, x.__dict__
return [*x], list(x), tuple(x)
return dict(zip('ab', x)), enumerate
return torch.ones(2), torch.zeros(1, dtype=torch.int64), torch.arange(3), torch.eye(2)
return torch.tensor([1.5, s]), torch.tensor([[1]]), torch.tensor(True), torch.linspace(0, 1, 3)
return torch.ones(2, requires_grad=True)
return (x * 1).requires_grad_()
return (x * 1).detach().requires_grad_(), x
z = x * 1; z.requires_grad_(); return z, z * 2
return x.grad
return x.hash if hasattr(x, 'hash') else x
return bool(x.shape), x.shape.numel(), hash(x.shape)
return format(x.shape), str(x.dtype)
""",
    "what depends on values": r"""
return x * x.sum().item()
return x.sum().item()
return x.tolist()
return float(x.sum()), int(y.sum())
return x if x.sum() > 0 else y
return x if bool((x > 0).all()) else y
return x.nonzero(), torch.where(x > 0)
return x[x > 0]
return x.masked_select(y > 0), x[x > 0].sum()
return torch.unique(x), x.unique(return_counts=True)
return x[int(y.abs().argmin()) % 2]
return torch.equal(x, y), torch.allclose(x, y)
return x.isnan().any().item()
for v in x.view(-1): x = x + v
return max(x[0, 0], y[0, 0])
return sum(x), sum(x[0])
return str(x), repr(x)
return f'{x.sum():.2f}'
return x == x, x in [x]
return hash(x), x
return {x: 1}[x]
return id(x)
assert (x == x).all(); return x
assert x.shape[0] > 0; return x
return x.numpy()
return numpy.asarray(x)
return torch.from_numpy(x.numpy())
return x.data_ptr()
return x._version
return x.untyped_storage().data_ptr()
return [v for v in x]
return [float(v) for v in x[0]]
return torch.tensor([float(x[0, 0]), 1.0])
return torch.tensor([x[0, 0], x[0, 1]])
return torch.arange(int(y.abs().max()) + 1)
return torch.zeros(int(x.abs().sum() * 0) + 2)
return torch.repeat_interleave(x, torch.tensor([1, 2]), 0) if x.shape[0] == 2 else x
return torch.bincount(x.abs().long().view(-1))
return x.item() if x.numel() == 1 else x
return x.any() and y.any()
return x.sum() or y
return not x.sum()
return (x > 0).sum() * 1.0, torch.count_nonzero(x)
return torch.is_nonzero(x[0, 0])
return x[torch.tensor([0, 0])], x[[0, 0]], x[torch.tensor(0)], x[:, [True, False, True]]
return torch.histc(x), torch.quantile(x, 0.5), x.median()
while x.sum() < 0: x = x + 1
return round(float(x.mean()), 2)
return x.mean().sqrt() if x.dtype.is_floating_point else x
return complex(x[0, 0]), operator.index(torch.tensor(2))
return [1, 2, 3][torch.tensor(1)], 'abc'[torch.tensor(0)]
return range(torch.tensor(3))[-1], math.sqrt(torch.tensor(4.0))
return math.floor(x.sum()), math.isnan(x.sum())
""",
    "modes and transforms": r"""
with torch.no_grad(): return x * 2
with torch.enable_grad(): return x * 2
with torch.inference_mode(): return x * 2
with torch.inference_mode(): return x.view(-1), x
with torch.inference_mode(False): return x * 2
with torch.set_grad_enabled(False): z = x * 2\nreturn z * y
with torch.no_grad(): z = x * 2\nreturn z + x, z
with torch.autocast('cpu', torch.bfloat16): return x @ y.t(), x + y
with torch.autocast('cpu', torch.bfloat16): z = x @ y.t()\nreturn z, z * z, x @ y.t()
with torch.autocast('cpu', enabled=False): return x @ y.t()
with torch.device('cpu'): return torch.ones(2) + 1
with torch.device('meta'): return torch.ones(2)
with torch.device('meta'): return torch.ones(2).shape, x
torch.set_grad_enabled(False); return x * 2
torch.set_default_dtype(torch.float64); return torch.ones(2) + x[0, 0]
torch.set_default_dtype(torch.float64); return 1
torch.set_num_threads(torch.get_num_threads()); return x
torch.use_deterministic_algorithms(True); return x * 2
with torch.autograd.set_detect_anomaly(True): return x * 2
with torch.autograd.graph.save_on_cpu(): return x * y
with torch.autograd.graph.saved_tensors_hooks(lambda t: t * 2, lambda t: t): return x * y
K = torch.nn.attention.SDPBackend; K = torch.nn.attention.sdpa_kernel(K.MATH)\nwith K: return \
torch.nn.functional.scaled_dot_product_attention(x[None], y[None], y[None])
return torch.is_grad_enabled(), torch.is_inference_mode_enabled(), torch.get_default_dtype()
return torch.is_autocast_enabled('cpu'), torch.get_default_device(),\
torch.are_deterministic_algorithms_enabled()
return torch.ones(2), torch.tensor([1.0]), torch.empty(0), torch.full((2,), 2.0), torch.rand(2) * 0
return torch.arange(3) / 2, torch.tensor(1.5), torch.tensor(1j), torch.linspace(0, 1, 2)
return torch.zeros(2).device, torch.zeros(2).dtype
return torch.utils.checkpoint.checkpoint(lambda a: a.sin() * y, x, use_reentrant=False)
return torch.utils.checkpoint.checkpoint(lambda a: a.sin() * y, x, use_reentrant=True)
return torch.func.vmap(lambda a: a * 2)(x), torch.vmap(torch.sum)(x)
return torch.func.grad(lambda a: (a ** 2).sum())(x)
return torch.func.jacrev(lambda a: a ** 2)(x[0]), torch.func.jacfwd(torch.sin)(x[0])
return torch.func.jvp(torch.sin, (x,), (y,))
return torch.func.vjp(torch.sin, x)[0], torch.func.vjp(torch.sin, x)[1](y)
return torch.func.hessian(lambda a: (a ** 3).sum())(x[0])
return torch.func.functional_call(NET, {'weight': x[:, :3], 'bias': y[:, 0]}, (x,))
return torch.autograd.grad((x * y).sum(), x)[0] if x.requires_grad else x
return torch.autograd.functional.jacobian(lambda a: a ** 2, x[0])
z = x.detach().requires_grad_(); return torch.autograd.grad((z ** 2).sum(), z)
return torch.cond(x.sum() > 0, lambda a: a + 1, lambda a: a - 1, (x,))
return torch.compile(lambda a: a * 2, backend='eager')(x)
return torch.jit.trace(lambda a: a * 2, x)(x)
return scripted(x)
return torch.fx.symbolic_trace(lambda a: a * 2)(x)
return Square.apply(x)
return Square.apply(x) + x
return torch.ops.tir_behaviors.twice(x)
return torch.ops.aten.add.Tensor(x, y), torch.ops.aten.t(x)
return torch.autograd.forward_ad.make_dual
with warnings.catch_warnings(): warnings.simplefilter('ignore'); return x * 2
with contextlib.suppress(ValueError): raise ValueError\nreturn x
return torch._C._get_tracing_state(), torch.jit.is_tracing(), torch.compiler.is_compiling()
""",
    "Python": r"""
raise ValueError('no')
raise ValueError(s)
if x.shape[0] > 2: raise IndexError(x.shape)\nreturn x
return x + undefined_name
return x.no_such
try: return x + torch.ones(5, 5)\nexcept RuntimeError: return x
try: x @ torch.ones(9, 9)\nexcept RuntimeError: pass\nreturn y
try: x.add_(1); raise KeyError\nexcept KeyError: return x
try: return x[9]\nexcept IndexError: return y
x.add_(1); raise KeyError(1)
return x + torch.ones(5, 5)
return x[100]
return x.view(7, 7)
return torch.cat([])
return x @ x @ x
return torch.add(x, y, alpha='a')
return 1 / 0
return [x][s]
return (x, y)[s] if type(s) is int and s < 2 else y
return x.reshape(s, -1) if type(s) is int else x
return x * s
return x * s + (s is True)
return x.pow(s), x.clamp(min=s), x + s, s - x
return [x] * 2 + [y]
return f2(x, s)
return (lambda a, *b, **c: (a, b, c))(x, y, k=s)
del x; return y
global G1; G1 = 3; return x * G1
x, y = y, x; return x - y
return [a + b for a in x for b in y[:1]]
return {k: v for k, v in zip('ab', (x, y))}
return functools.reduce(torch.add, [x, y, x])
return sorted([3, 1]), x
return functools.partial(torch.add, alpha=2)(x, y)
return operator.add(x, y), operator.itemgetter(0)(x), operator.methodcaller('t')(x)
return getattr(x, 't')(), getattr(torch, 'neg')(x)
return copy.copy(x), x
return copy.deepcopy(x)
return copy.deepcopy(W)
return pickle.loads(pickle.dumps(s)), x
return x.__add__(y), x.__len__(), x.__getitem__(0)
match s:\n case int(): return x\n case _: return y
return (z := x + 1), z
print(end=''); return x
return x if s else y
return x * len(locals()), x * len(str(s))
exec('q = 1'); return x
return eval('x + 1')
return x * time.time()
return x + (time.time() > 0)
return torch.nn.functional.one_hot(torch.tensor([1, 0]), 3), torch.nn.functional.normalize(x)
return x.apply(1) if hasattr(x, 'apply') else x
return super_(x)
import torch.nn.functional as FF; return FF.relu(x)
from torch.nn import functional; return functional.gelu(x)
return async_(x)
return default(x), default(y)
return x + COUNT[0]
COUNT[0] += 1; return x + COUNT[0]
COUNT.append(1); return x * len(COUNT)
TABLE['n'] = TABLE.get('n', 0) + 1; return x * TABLE['n']
CACHE.setdefault(s, x * 2); return CACHE[s]
OBJ.last = x; return x
OBJ.n += 1; return x * OBJ.n
TENSORS.append(x); return x
TENSORS[0] = x; return x
TENSORS[0].add_(1); return TENSORS[0] + x[0, 0]
TENSORS[0][0] = 5; return x + TENSORS[0][0]
W.data.mul_(2); return x + W[0, 0]
with torch.no_grad(): W.mul_(2); return x + W[0, 0]
B.add_(1); return B
B.add_(1); return B + x[0, 0], B
B.copy_(x.sum().expand(2)); return x
return B
return B, B[0], B.view(-1)
return B.expand(2, 2), x
return x.add_(B[0])
BASE[0].add_(1); return BASE[1], BASE_VIEW
BASE_VIEW.add_(1); return BASE * 2
return BASE_VIEW, BASE
B.requires_grad_(); return B * 2
W.requires_grad_(False); return W * x[0, 0]
W.grad = None; return W * 2
return W.grad, x
(W * x[0, 0]).sum().backward(); return x
return next(GEN)
return x * next(ITER)
return x * lru(s), lru(2)
""",
    "modules": r"""
return NET(x)
return NET(x), NET.weight
NET.train(); return NET(x)
NET.eval(); return NET(x), NET.training
return NORM(x)
return NORM(x), NORM.running_mean
return NORM.eval()(x)
return NORM.train()(x), NORM.num_batches_tracked
return DROP(x), DROP.p
return GRU(x)
return LSTM(x)
return LSTM(x[None])[0]
return EMB(torch.tensor([0, 1]))
return EMB(torch.tensor([0, 1])), EMB.weight
return BAG(torch.tensor([[0, 1]]))
return MHA(x[:, None, :2], x[:, None, :2], x[:, None, :2])
return MHA.eval()(x[:, None, :2], x[:, None, :2], x[:, None, :2])[0]
return ENC(x[None, :, :2])
return ENC.eval()(x[None, :, :2])
return SPECTRAL(x)
return WNORM(x), WNORM.weight
return OLD_WNORM(x)
return INST(x[None])
return torch.nn.Linear(3, 2)(x)
return torch.nn.ReLU(inplace=True)(x)
return torch.nn.Sequential(NET, torch.nn.Tanh())(x)
NET.extra = 3; return NET(x) * NET.extra
NET.register_buffer('b2', torch.ones(2)); return NET(x) + NET.b2
NET.weight.data.add_(1); return NET(x)
NET.weight = torch.nn.Parameter(torch.ones(2, 3)); return NET(x)
NET.bias = None; return NET(x)
NET.double(); return x
NET.to(torch.float32); return NET(x)
NET.requires_grad_(False); return NET(x)
NET.zero_grad(); return NET(x)
NET.half(); NET.float(); return NET(x)
h = NET.register_forward_hook(lambda m, i, o: o * 2); z = NET(x); h.remove(); return z, NET(x)
return NET.state_dict()
return dict(NET.named_parameters())
return list(NET.parameters()), [n for n, _ in NET.named_modules()]
return [p.shape for p in NET.parameters()], len(list(NET.buffers()))
return COUNTER(x)
return COUNTER2(x)
return COUNTER3(x)
return COUNTER4(x)
return CACHED(x)
return KV(x)
return COPY(x)
return copy.deepcopy(NET)(x)
return torch.nn.functional.batch_norm(x, B3, V3, training=True), B3
return torch.nn.functional.layer_norm(x, x.shape), torch.nn.functional.linear(x, y)
return torch.nn.functional.cross_entropy(x, torch.tensor([0, 1])) if x.shape[0] == 2 else x
return torch.nn.functional.mse_loss(x, y),\
torch.nn.functional.scaled_dot_product_attention(x[None], y[None], y[None])
return torch.nn.utils.clip_grad_norm_(NET.parameters(), 1.0)
return torch.nn.utils.parameters_to_vector(NET.parameters()), x
torch.nn.utils.vector_to_parameters(torch.zeros(8), NET.parameters()); return NET(x)
torch.optim.SGD([x], 0.1).step(); return x
return LIST[0](x), len(LIST), PLIST[0] * 2
return MDICT['a'](x), PDICT['w'] * x[0, 0]
return SCRIPT_NET(x)
return LAZY(x)
return HOOKED(x)
return PRE_HOOKED(x)
return GRAD_HOOKED(x)
""",
}
