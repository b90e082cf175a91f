// What every Backend must do, as one parameterised suite: include this and instantiate
// BackendConformanceTest with a way to make the backend. Numbers are compared with the float64
// reference ([N9]); everything else is compared in bits. Used by tests only; each test makes its
// own backend.
#ifndef KAON_TESTS_CONFORMANCE_BACKEND_BACKEND_CONFORMANCE_H_
#define KAON_TESTS_CONFORMANCE_BACKEND_BACKEND_CONFORMANCE_H_

// The tests are defined in these, so that including this header registers them all.
#include "tests/conformance/backend/backend_conformance_digest.h"
#include "tests/conformance/backend/backend_conformance_element_wise.h"
#include "tests/conformance/backend/backend_conformance_encoded.h"
#include "tests/conformance/backend/backend_conformance_fixture.h"
#include "tests/conformance/backend/backend_conformance_fold.h"
#include "tests/conformance/backend/backend_conformance_grad_dtype.h"
#include "tests/conformance/backend/backend_conformance_mean.h"
#include "tests/conformance/backend/backend_conformance_muon.h"
#include "tests/conformance/backend/backend_conformance_update.h"

#endif  // KAON_TESTS_CONFORMANCE_BACKEND_BACKEND_CONFORMANCE_H_
