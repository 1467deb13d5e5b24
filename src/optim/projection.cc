#include "optim/projection.h"

#include <Eigen/Dense>
#include <cmath>
#include <optional>

#include "kernels/elementwise.h"
#include "kernels/optimizer.h"
#include "nn/init.h"

namespace lode {
namespace {

using Matrix = Eigen::Matrix<double, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;

constexpr std::int64_t kSmallSide = 64;
constexpr int kColdIterations = 4, kWarmIterations = 1;

Matrix to_eigen(ConstView x) {
  return Eigen::Map<const Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>, 0,
                    Eigen::OuterStride<>>(x.row<float>(0), x.rows, x.cols, Eigen::OuterStride<>(x.stride))
      .cast<double>();
}

void write_rows(const Matrix& rows, View out) {
  for (std::int64_t r = 0; r < out.rows; ++r) {
    Eigen::Index largest = 0;
    rows.row(r).cwiseAbs().maxCoeff(&largest);
    const double sign = rows(r, largest) < 0 ? -1 : 1;
    for (std::int64_t c = 0; c < out.cols; ++c) out.row<float>(r)[c] = static_cast<float>(sign * rows(r, c));
  }
}

// Eigenvectors of the largest eigenvalues as rows, largest first.
Matrix leading_vectors(const Matrix& symmetric, std::int64_t count) {
  const Eigen::SelfAdjointEigenSolver<Matrix> solver(symmetric);
  return solver.eigenvectors().rightCols(count).rowwise().reverse().transpose();
}

// Rows made orthonormal, as a QR decomposition of the transpose does.
Matrix orthonormal_rows(const Matrix& rows) {
  const Matrix columns = rows.transpose();
  Eigen::HouseholderQR<Matrix> qr(columns);
  return (qr.householderQ() * Matrix::Identity(columns.rows(), columns.cols())).transpose();
}

// W such that W X has orthonormal rows, by the Cholesky decomposition of the Gram matrix X X^T; nothing when
// the rows depend on each other so far that f32's rounding of the Gram matrix counts.
std::optional<Tensor> whitening(Context& context, ConstView gram) {
  const Eigen::LLT<Matrix> decomposition(to_eigen(gram));
  if (decomposition.info() != Eigen::Success) return std::nullopt;
  const Matrix lower = decomposition.matrixL();
  const double least = lower.diagonal().minCoeff(), most = lower.diagonal().maxCoeff();
  if (!(least > 4e-3 * most)) return std::nullopt;
  const Matrix inverse = lower.triangularView<Eigen::Lower>().solve(Matrix::Identity(gram.rows, gram.rows));
  Tensor out = scratch(context, gram.rows, gram.rows);
  for (std::int64_t r = 0; r < gram.rows; ++r) {
    for (std::int64_t c = 0; c < gram.rows; ++c)
      out.view().row<float>(r)[c] = static_cast<float>(inverse(r, c));
  }
  return out;
}

// The Gram matrix of the projected space: low^T low on the right, low low^T on the left.
Tensor gram_of(Context& context, const Projection& p, ConstView low) {
  Tensor gram = scratch(context, p.rank, p.rank);
  multiply_symmetric(context,
                     {.a = low, .b = low, .transpose_a = p.right, .transpose_b = !p.right, .c = gram.view()});
  return gram;
}

// Twice, since the first time leaves what rounding made of nearly dependent rows.
void orthonormalise(Context& context, View rows) {
  for (int i = 0; i < 2; ++i) {
    Tensor gram = scratch(context, rows.rows, rows.rows);
    multiply_symmetric(context, {.a = rows, .b = rows, .transpose_b = true, .c = gram.view()});
    const auto whiten = whitening(context, gram.view());
    if (!whiten) return write_rows(orthonormal_rows(to_eigen(rows)), rows);
    Tensor before = scratch(context, rows.rows, rows.cols);
    convert(context.kernel, rows, before.view());
    multiply(context, {.a = whiten->view(), .b = before.view(), .c = rows});
  }
}

}  // namespace

Projection::Projection(const Parameter& parameter, ProjectedSide where, std::int64_t wanted) {
  const bool standard = parameter.rows >= parameter.cols;
  right = where == ProjectedSide::right || (where == ProjectedSide::standard && standard) ||
          (where == ProjectedSide::reverse_standard && !standard);
  rank = std::min({wanted, parameter.rows, parameter.cols});
  side = right ? parameter.cols : parameter.rows;
  low_rows = right ? parameter.rows : rank;
  low_cols = right ? rank : parameter.cols;
}

MatMul Projection::forward(ConstView projector, ConstView full, View low) const {
  if (right) return {.a = full, .b = projector, .transpose_b = true, .c = low};
  return {.a = projector, .b = full, .c = low};
}

MatMul Projection::back(ConstView projector, ConstView low, View full) const {
  if (right) return {.a = low, .b = projector, .c = full};
  return {.a = projector, .b = low, .transpose_a = true, .c = full};
}

std::vector<std::string> LowRankOptimizer::state_names(const Parameter& parameter) const {
  return is_target(parameter, choice_.targets) ? low_rank_names() : rest_->state_names(parameter);
}

std::vector<Tensor> LowRankOptimizer::init_one(Context& context, const Parameter& parameter) const {
  if (!is_target(parameter, choice_.targets)) return rest_->init_one(context, parameter);
  return init_low_rank(context, {parameter, choice_.side, choice_.rank});
}

void LowRankOptimizer::step_one(Context& context, const Parameter& parameter, std::vector<Tensor>& state,
                                const StepArguments& arguments) const {
  if (!is_target(parameter, choice_.targets)) return rest_->step_one(context, parameter, state, arguments);
  step_low_rank(context, parameter, {parameter, choice_.side, choice_.rank}, state, arguments);
}

double LowRankOptimizer::corrected_rate(const AdamWOptions& adamw, const StepArguments& arguments) {
  const auto time = static_cast<double>(arguments.time);
  return arguments.learning_rate * std::sqrt(1 - std::pow(adamw.beta2, time)) /
         (1 - std::pow(adamw.beta1, time));
}

void LowRankOptimizer::adam_direction_of(Context& context, const AdamWOptions& adamw, Tensor& low,
                                         std::vector<Tensor>& state, const StepArguments& arguments) {
  adam_direction(context.kernel, {.grad = low.view(),
                                  .exp_avg = state[0].view(),
                                  .exp_avg_sq = state[1].view(),
                                  .direction = low.view(),
                                  .beta1 = adamw.beta1,
                                  .beta2 = adamw.beta2,
                                  .eps = adamw.eps,
                                  .grad_scale = arguments.grad_scale});
}

void fill_random_projector(Context& context, PhiloxKey key, View projector) {
  const double deviation = 1 / std::sqrt(static_cast<double>(projector.rows));
  fill_normal(context, projector, key, static_cast<float>(deviation));
}

void find_subspace(Context& context, ConstView g, const Projection& p, const SubspaceOptions& options,
                   View projector) {
  if (options.exact || p.side <= kSmallSide || 2 * p.rank > p.side) {
    const Matrix full = to_eigen(g);
    return write_rows(
        leading_vectors(p.right ? Matrix(full.transpose() * full) : Matrix(full * full.transpose()), p.rank),
        projector);
  }
  if (!options.warm) fill_random_projector(context, options.key, projector);
  Tensor low = scratch(context, p.low_rows, p.low_cols);
  const int iterations = options.warm ? kWarmIterations : kColdIterations;
  for (int i = 0; i < iterations; ++i) {
    multiply(context, p.forward(projector, g, low.view()));
    const auto whiten = whitening(context, gram_of(context, p, low.view()).view());
    Tensor rows = scratch(context, p.rank, p.side);
    const View next = whiten ? rows.view() : projector;
    multiply(context, {.a = low.view(), .b = g, .transpose_a = p.right, .transpose_b = !p.right, .c = next});
    // Halfway the projected space is made orthonormal too, or the rows would be nearly dependent.
    if (whiten) multiply(context, {.a = whiten->view(), .b = next, .c = projector});
    orthonormalise(context, projector);
  }
  // Rotated within its span so that rows are singular vectors of the projected matrix, largest first.
  multiply(context, p.forward(projector, g, low.view()));
  const Matrix gram = to_eigen(gram_of(context, p, low.view()).view());
  write_rows(leading_vectors(gram, p.rank) * to_eigen(projector), projector);
}

}  // namespace lode
