"""Every space keeps the promises of `Space`; finite ones can be listed and numbered."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import thalweg as tw
from thalweg.spaces import Continuous, Discrete, Finite, require_gradient

SPACES = {
    "Real": tw.Real((2, 3)),
    "Real scalar": tw.Real(()),
    "Positive": tw.Positive(3),
    "Interval": tw.Interval(-2.0, 5.0, shape=3),
    "Simplex": tw.Simplex(4),
    "PositiveDefinite": tw.PositiveDefinite(3),
    "Counts": tw.Counts(3),
    "Binary": tw.Binary(4),
    "Spin": tw.Spin((2, 2)),
    "Categorical": tw.Categorical(3, 5),
}
FINITE = {name: space for name, space in SPACES.items() if isinstance(space, Finite)}
OUTSIDE = {
    "Real": jnp.full((2, 3), jnp.inf),
    "Real scalar": jnp.array(jnp.nan),
    "Positive": jnp.array([1.0, 0.0, 1.0]),
    "Interval": jnp.array([0.0, 5.0, 1.0]),
    "Simplex": jnp.array([0.5, 0.5, 0.5, -0.5]),
    "PositiveDefinite": jnp.diag(jnp.array([1.0, 1.0, -1.0])),
    "Counts": jnp.array([1, -1, 0]),
    "Binary": jnp.array([0, 1, 2, 0]),
    "Spin": jnp.array([[1, -1], [0, 1]]),
    "Categorical": jnp.array([0, 5, 1]),
}


@pytest.fixture(scope="module")
def noise_draws():
    """Noise of every space, whether it lies inside, and whether what lies outside does, in one compiled program."""

    @jax.jit
    def draw(key):
        noise = {name: space.noise(key, (7, 5)) for name, space in SPACES.items()}
        inside = {name: jax.vmap(jax.vmap(SPACES[name].contains))(points) for name, points in noise.items()}
        return noise, inside, {name: SPACES[name].contains(x) for name, x in OUTSIDE.items()}

    return draw(jax.random.key(20261115))


@pytest.mark.parametrize("name", SPACES)
def test_noise_has_the_shape_and_type_of_the_space_and_lies_in_it(noise_draws, name):
    points, inside, space = noise_draws[0][name], noise_draws[1][name], SPACES[name]
    assert points.shape == (7, 5, *space.shape)
    assert points.dtype == space.dtype
    assert np.all(inside)
    assert len(np.unique(np.asarray(points).reshape(35, -1), axis=0)) > 5


@pytest.mark.parametrize("name", SPACES)
def test_what_lies_outside_is_not_contained(noise_draws, name):
    assert not noise_draws[2][name]


@pytest.mark.parametrize("name", SPACES)
def test_a_space_is_hashable_and_equal_to_its_like(name):
    space = SPACES[name]
    assert space == jax.tree.unflatten(jax.tree.structure(space), jax.tree.leaves(space))
    assert hash(space) == hash(space)
    assert all((space == other) == (name == other_name) for other_name, other in SPACES.items())


@pytest.mark.parametrize("name", SPACES)
def test_gradients_are_refused_on_discrete_spaces_alone(name):
    space, x = SPACES[name], jnp.zeros(2)
    assert isinstance(space, Continuous) != isinstance(space, Discrete)
    if isinstance(space, Discrete):
        with pytest.raises(ValueError, match=r"expected a continuous space for Langevin.*GibbsWithGradients"):
            require_gradient("Langevin", space, x)
    else:
        require_gradient("Langevin", space, x)


def test_gradients_are_refused_at_whole_numbers():
    with pytest.raises(ValueError, match="expected floating-point numbers for Langevin, got int32"):
        require_gradient("Langevin", None, jnp.arange(3))


@pytest.mark.parametrize("name", FINITE)
def test_states_lists_every_state_once_and_index_inverts_it(name):
    space = FINITE[name]

    @jax.jit
    def listed():
        states = space.states(0, space.size)
        return states, jax.vmap(space.contains)(states), jax.vmap(space.index)(states), space.states(3, 5)

    states, inside, numbers, some = (np.asarray(answer) for answer in listed())
    assert len(np.unique(states.reshape(space.size, -1), axis=0)) == space.size
    assert np.all(inside)
    assert np.array_equal(numbers, np.arange(space.size))
    assert np.array_equal(some, states[3:8])


def test_the_last_coordinate_turns_fastest():
    three, two = jax.jit(lambda: (tw.Categorical(2, 3).states(4, 3), tw.Spin(2).states(0, 4)))()
    assert three.tolist() == [[1, 1], [1, 2], [2, 0]]
    assert two.tolist() == [[-1, -1], [-1, 1], [1, -1], [1, 1]]


def test_states_near_the_limit_of_enumeration_are_numbered_rightly():
    space = tw.Binary(25)
    last = jax.jit(lambda: space.states(2**25 - 2, 2))()
    assert np.asarray(last).sum(axis=1).tolist() == [24, 25]
    assert jax.jit(jax.vmap(space.index))(last).tolist() == [2**25 - 2, 2**25 - 1]
    # coordinates beyond the range of 32-bit numbers do not disturb the first states
    assert jax.jit(lambda: tw.Binary(40).states(5, 1))()[0].tolist() == [0] * 37 + [1, 0, 1]


def test_noise_never_lands_on_an_open_end():
    space = tw.Interval(100.0, 100.00006)
    # in single precision few numbers lie between the ends, and the ends themselves would be noise_draws
    points = jax.jit(lambda key: space.noise(key, (1000,)))(jax.random.key(0))
    assert np.all((np.asarray(points) > np.float32(100.0)) & (np.asarray(points) < np.float32(100.00006)))


def test_a_product_holds_tuples(key):
    space = tw.Product(tw.Real(2), tw.Binary(3))
    assert space.shape == ((2,), (3,))
    assert space.dtype == (tw.Real(2).dtype, tw.Binary(3).dtype)

    @jax.jit
    def draw(key):
        real, bits = space.noise(key, (4,))
        return real, bits, space.contains((real[0], bits[0])), space.contains((real[0], bits[0] + 2))

    real, bits, inside, outside = draw(key)
    assert real.shape == (4, 2) and bits.shape == (4, 3)
    assert inside and not outside


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: tw.Real(0), r"expected a shape of positive sizes, got \(0,\)"),
        (lambda: tw.Binary((2, -1)), r"expected a shape of positive sizes, got \(2, -1\)"),
        (lambda: tw.Interval(1.0, 1.0), r"expected low < high, got \(1.0, 1.0\)"),
        (lambda: tw.Categorical(2, 1), "expected k >= 2 labels, got 1"),
        (lambda: tw.Product(), "expected at least one space, got none"),
    ],
)
def test_impossible_spaces_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()
