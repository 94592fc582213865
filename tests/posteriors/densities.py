"""The same twelve log densities a second time: NumPy and SciPy in float64, on the raw data, term by term as written."""

import numpy as np
from scipy import stats
from tests.posteriors.models import read


def _eight_schools(theta, mu, tau):
    data = read("eight_schools")
    priors = stats.norm.logpdf(mu, 0, 5) + stats.halfcauchy.logpdf(tau, scale=5)
    return stats.norm.logpdf(data["y"], theta, data["sigma"]).sum() + priors


def eight_schools_centered(x):
    return _eight_schools(x["theta"], x["mu"], x["tau"]) + stats.norm.logpdf(x["theta"], x["mu"], x["tau"]).sum()


def eight_schools_noncentered(x):
    standardised = x["theta_standardised"]
    theta = x["mu"] + x["tau"] * standardised
    return _eight_schools(theta, x["mu"], x["tau"]) + stats.norm.logpdf(standardised).sum()


def arK(x):
    data = read("arK")
    total = stats.norm.logpdf(x["alpha"], 0, 10) + stats.norm.logpdf(x["beta"], 0, 10).sum()
    total += stats.halfcauchy.logpdf(x["sigma"], scale=2.5)
    for t in range(data["K"], data["T"]):
        mean = x["alpha"] + sum(x["beta"][k] * data["y"][t - k - 1] for k in range(data["K"]))
        total += stats.norm.logpdf(data["y"][t], mean, x["sigma"])
    return total


def arma11(x):
    data = read("arma")
    y, mu, phi, theta, sigma = data["y"], x["mu"], x["phi"], x["theta"], x["sigma"]
    errors = [y[0] - (mu + phi * mu)]
    for t in range(1, data["T"]):
        errors.append(y[t] - (mu + phi * y[t - 1] + theta * errors[-1]))
    priors = stats.norm.logpdf(mu, 0, 10) + stats.norm.logpdf([phi, theta], 0, 2).sum()
    return stats.norm.logpdf(errors, 0, sigma).sum() + priors + stats.halfcauchy.logpdf(sigma, scale=2.5)


def blr(x):
    data = read("sblrc")
    priors = stats.norm.logpdf(x["beta"], 0, 10).sum() + stats.halfnorm.logpdf(x["sigma"], scale=10)
    return stats.norm.logpdf(data["y"], data["X"] @ x["beta"], x["sigma"]).sum() + priors


def kidscore_interaction(x):
    data = read("kidiq")
    one, two, three, four = x["beta"]
    mean = one + two * data["mom_hs"] + three * data["mom_iq"] + four * data["mom_hs"] * data["mom_iq"]
    return stats.norm.logpdf(data["kid_score"], mean, x["sigma"]).sum() + stats.halfcauchy.logpdf(x["sigma"], scale=2.5)


def earn_height(x):
    data = read("earnings")
    return stats.norm.logpdf(data["earn"], x["beta"][0] + x["beta"][1] * data["height"], x["sigma"]).sum()


def logearn_interaction(x):
    data = read("earnings")
    one, two, three, four = x["beta"]
    mean = one + two * data["height"] + three * data["male"] + four * data["height"] * data["male"]
    return stats.norm.logpdf(np.log(data["earn"]), mean, x["sigma"]).sum()


def kernel(x, rho, alpha):
    return alpha**2 * np.exp(-(np.subtract.outer(x, x) ** 2) / (2 * rho**2))


def _gaussian_process(x):
    return stats.gamma.logpdf(x["rho"], 25, scale=1 / 4) + stats.halfnorm.logpdf(x["alpha"], scale=2)


def gp_regr(x):
    data = read("gp_pois_regr")
    covariance = kernel(data["x"], x["rho"], x["alpha"]) + x["sigma"] * np.eye(data["N"])
    likelihood = stats.multivariate_normal.logpdf(data["y"], np.zeros(data["N"]), covariance)
    return likelihood + _gaussian_process(x) + stats.halfnorm.logpdf(x["sigma"])


def log_rates(x):
    data = read("gp_pois_regr")
    factor = np.linalg.cholesky(kernel(data["x"], x["rho"], x["alpha"]) + 1e-10 * np.eye(data["N"]))
    return factor @ x["f_standardised"]


def gp_pois_regr(x):
    likelihood = stats.poisson.logpmf(read("gp_pois_regr")["k"], np.exp(log_rates(x))).sum()
    return likelihood + _gaussian_process(x) + stats.norm.logpdf(x["f_standardised"]).sum()


def hmm_example(x):
    means = np.array([x["mu1"], x["mu1"] + x["gap"]])
    moves = np.log(np.stack([x["theta1"], x["theta2"]]))
    forward = None
    for y in read("hmm_example")["y"]:
        arrived = 0.0 if forward is None else np.logaddexp.reduce(forward[:, None] + moves, axis=0)
        forward = arrived + stats.norm.logpdf(y, means, 1)
    return np.logaddexp.reduce(forward) + stats.norm.logpdf(means, [3, 10], 1).sum()


def low_dim_gauss_mix(x):
    mu, sigma, theta = [x["mu1"], x["mu1"] + x["gap"]], x["sigma"], x["theta"]
    y = read("low_dim_gauss_mix")["y"]
    first = np.log(theta) + stats.norm.logpdf(y, mu[0], sigma[0])
    second = np.log1p(-theta) + stats.norm.logpdf(y, mu[1], sigma[1])
    priors = stats.norm.logpdf(mu, 0, 2).sum() + stats.halfnorm.logpdf(sigma, scale=2).sum()
    return np.logaddexp(first, second).sum() + priors + stats.beta.logpdf(theta, 5, 5)
