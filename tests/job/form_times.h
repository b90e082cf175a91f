// Tables of times as shards measure them, made up, and jobs that leave their form to them. For
// tests.
#ifndef KAON_TESTS_JOB_FORM_TIMES_H_
#define KAON_TESTS_JOB_FORM_TIMES_H_

#include <cstdint>

#include "job/form_choice.h"

namespace kaon::job {

// One row, of the default dtype: 256 rows, `width` times as many columns.
inline v1::NewtonSchulzFormTime FormTime(
    uint64_t width, double standard_seconds, double gram_seconds,
    v1::NewtonSchulzDType dtype = v1::NEWTON_SCHULZ_DTYPE_BFLOAT16) {
  v1::NewtonSchulzFormTime time;
  time.set_dtype(dtype);
  time.set_rows(256);
  time.set_cols(256 * width);
  time.set_standard_seconds(standard_seconds);
  time.set_gram_seconds(gram_seconds);
  return time;
}

// In which Gram form gains so much for the wide shape, and nothing for the other.
inline FormTimes TimesWithGain(double gain) {
  return {FormTime(2, 1, 1), FormTime(4, 2 * gain, 2)};
}

// `job`, whose first group is of Muon, with the form of that left to the shards.
inline v1::JobDefinition WithFastestForm(v1::JobDefinition job) {
  job.mutable_groups(0)->mutable_muon()->mutable_newton_schulz()->set_form(
      v1::NEWTON_SCHULZ_FORM_FASTEST);
  return job;
}

}  // namespace kaon::job

#endif  // KAON_TESTS_JOB_FORM_TIMES_H_
