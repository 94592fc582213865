"""Every continuous space is mapped to R^d and back; the log-determinants are those of autodiff."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import thalweg as tw
from thalweg.spaces import is_continuous

SPACES = {
    "Real": tw.Real((2, 3)),
    "Real scalar": tw.Real(()),
    "Positive": tw.Positive((2, 2)),
    "Positive scalar": tw.Positive(),
    "Interval": tw.Interval(-2.0, 5.0, shape=3),
    "Interval scalar": tw.Interval(),
    "Simplex": tw.Simplex(5),
    "PositiveDefinite": tw.PositiveDefinite(3),
    "PositiveDefinite, a number": tw.PositiveDefinite(1),
    "tuple": tw.Product(tw.Positive(2), tw.Simplex(3)),
    "dict": tw.Product(rate=tw.Positive(), matrix=tw.PositiveDefinite(2), shift=tw.Real(2)),
    "nested": tw.Product(tw.Real(), tw.Product(b=tw.Interval(0.0, 2.0), a=tw.Simplex(3))),
}
spaces = pytest.mark.parametrize("name", SPACES)


def free(space, x):
    """The free coordinates of a point, which the reference measure counts, as one flat array."""
    if isinstance(space, tw.Product):
        return jnp.concatenate([free(part, value) for part, value in zip(space.parts, space.split(x), strict=True)])
    if isinstance(space, tw.Simplex):
        return x[:-1]
    return x[np.tril_indices(space.n)] if isinstance(space, tw.PositiveDefinite) else x.reshape(-1)


def points(space, scale, count=6):
    return scale * np.random.default_rng(1).standard_normal((count, space.dimension)).astype(np.float32)


@pytest.fixture(scope="module")
def mapped():
    """Everything the tests ask for, in one compiled program."""

    @jax.jit
    def compute(coordinates):
        answers = {}
        for name, space in SPACES.items():

            def log_det(z, space=space):
                return jnp.linalg.slogdet(jax.jacfwd(lambda z: free(space, space.from_real(z)))(z))[1]

            def one(z, space=space, log_det=log_det):
                x = space.from_real(z)
                return {
                    "x": x,
                    "inside": space.contains(x),
                    "back": space.to_real(x),
                    "log_det": space.log_det(z),
                    "autodiff": log_det(z),
                    "gradient": jax.grad(space.log_det)(z),
                    "autodiff gradient": jax.grad(log_det)(z),
                }

            answers[name] = jax.vmap(one)(coordinates[name])
        return answers

    return jax.tree.map(np.asarray, compute({name: points(space, 1.5) for name, space in SPACES.items()}))


@spaces
def test_points_have_the_form_of_the_space_and_lie_in_it(mapped, name):
    x = mapped[name]["x"]
    shapes = jax.tree.map(lambda leaf: leaf.shape[1:], x)
    assert shapes == SPACES[name].shape
    assert mapped[name]["inside"].all()


@spaces
def test_the_coordinates_come_back(mapped, name):
    assert mapped[name]["back"].shape == (6, SPACES[name].dimension)
    assert np.allclose(mapped[name]["back"], points(SPACES[name], 1.5), atol=1e-3)


@spaces
def test_the_log_determinant_is_that_of_autodiff(mapped, name):
    assert np.allclose(mapped[name]["log_det"], mapped[name]["autodiff"], atol=2e-4, rtol=1e-5)
    assert np.allclose(mapped[name]["gradient"], mapped[name]["autodiff gradient"], atol=1e-3, rtol=1e-4)


@pytest.mark.parametrize("size", [10.0, 50.0, 200.0])
def test_points_from_far_away_lie_in_the_space_and_the_density_falls_there(size):
    corners = {
        name: np.concatenate([size * np.sign(points(space, 1.0, 8)), points(space, size, 8)])
        for name, space in SPACES.items()
    }

    @jax.jit
    def look(corners):
        def one(space, z):
            return space.contains(space.from_real(z)), space.log_det(z), space.log_det(10 * z)

        return {name: jax.vmap(lambda z, s=SPACES[name]: one(s, z))(rows) for name, rows in corners.items()}

    for name, (inside, log_det, further) in look(corners).items():
        assert np.all(inside), name
        assert np.all(np.isfinite(log_det)), name
        # past the last number there is no mass: a chain sent there is drawn back
        if size == 200.0 and "Real" not in name:
            assert np.all(further < log_det), name


def test_the_ends_of_an_interval_keep_their_digits():
    space = tw.Interval(0.0, 1.0)
    assert np.isclose(float(space.from_real(jnp.array([-60.0]))), np.exp(-60.0), rtol=1e-5)
    assert np.isclose(float(space.to_real(space.from_real(jnp.array([-60.0])))[0]), -60.0)
    assert float(tw.Interval(-1.0, 0.0).from_real(jnp.array([200.0]))) < 0


def test_zero_is_the_centre():
    assert np.allclose(tw.Simplex(5).from_real(jnp.zeros(4)), 0.2)
    assert np.allclose(tw.PositiveDefinite(3).from_real(jnp.zeros(6)), np.eye(3), atol=1e-5)
    assert float(tw.Interval(-1.0, 3.0).from_real(jnp.zeros(1))) == 1.0
    assert tw.Simplex(1).from_real(jnp.zeros(0)).tolist() == [1.0]


def test_badly_scaled_matrices_are_positive_definite():
    space = tw.PositiveDefinite(2)
    scale = jnp.array([1e-6, 1e6])
    correlated = jnp.array([[1.0, 0.9], [0.9, 1.0]]) * scale[:, None] * scale
    assert space.contains(correlated)
    assert not space.contains(correlated.at[0, 1].multiply(1.2).at[1, 0].multiply(1.2))
    assert not space.contains(jnp.array([[1.0, 0.5], [0.4, 1.0]]))
    assert not space.contains(jnp.full((2, 2), jnp.nan))


def test_products_know_whether_they_are_continuous():
    mixed = tw.Product(tw.Real(2), tw.Product(a=tw.Binary(3)))
    assert SPACES["nested"].continuous and is_continuous(SPACES["nested"]) and is_continuous(tw.Real(2))
    assert not mixed.continuous and not is_continuous(mixed) and not is_continuous(tw.Spin(2))
    assert not is_continuous(None)
    for ask in (lambda: mixed.dimension, lambda: mixed.from_real(jnp.zeros(2)), lambda: mixed.log_det(jnp.zeros(2))):
        with pytest.raises(ValueError, match=r"expected continuous parts for real coordinates, got Product.*Binary"):
            ask()


def test_products_are_compared_and_hashed():
    assert tw.Product(a=tw.Real(2), b=tw.Real(3)) == tw.Product(b=tw.Real(3), a=tw.Real(2))
    assert tw.Product(tw.Real(2), tw.Real(3)) != tw.Product(tw.Real(3), tw.Real(2))
    assert tw.Product(tw.Real(2), tw.Real(3)) != tw.Product(a=tw.Real(2), b=tw.Real(3))
    assert len({SPACES["nested"], SPACES["dict"], SPACES["nested"], tw.Real(2), tw.Real(3)}) == 4


def test_a_product_of_names_holds_dictionaries(key):
    space = tw.Product(z=tw.Spin(2), inner=tw.Product(tw.Real(()), tw.Counts(3)))
    assert space.shape == {"inner": ((), (3,)), "z": (2,)}
    assert space.dtype == {"inner": (jnp.dtype("float32"), jnp.dtype("int32")), "z": jnp.dtype("int32")}
    noise = space.noise(key, (4, 2))
    assert jax.tree.map(lambda leaf: leaf.shape, noise) == {"inner": ((4, 2), (4, 2, 3)), "z": (4, 2, 2)}
    assert jax.vmap(jax.vmap(space.contains))(noise).all()
    assert not space.contains({"inner": (jnp.zeros(()), jnp.zeros(3)), "z": jnp.zeros(2)})
