// The conformance suite of Backend. To run it, include this file and instantiate
// BackendConformanceTest with a function that makes the backend. Numbers are compared with the
// float64 reference within the tolerances of [N9]; everything else is compared bit by bit. Used by
// tests only; each test makes its own backend.
#ifndef KAON_TESTS_CONFORMANCE_BACKEND_BACKEND_CONFORMANCE_H_
#define KAON_TESTS_CONFORMANCE_BACKEND_BACKEND_CONFORMANCE_H_

// These headers define the tests, so including this header registers all of them.
#include "tests/conformance/backend/backend_conformance_batch.h"
#include "tests/conformance/backend/backend_conformance_digest.h"
#include "tests/conformance/backend/backend_conformance_element_wise.h"
#include "tests/conformance/backend/backend_conformance_encoded.h"
#include "tests/conformance/backend/backend_conformance_fixture.h"
#include "tests/conformance/backend/backend_conformance_fold.h"
#include "tests/conformance/backend/backend_conformance_grad_dtype.h"
#include "tests/conformance/backend/backend_conformance_mean.h"
#include "tests/conformance/backend/backend_conformance_memory.h"
#include "tests/conformance/backend/backend_conformance_muon.h"
#include "tests/conformance/backend/backend_conformance_update.h"

#endif  // KAON_TESTS_CONFORMANCE_BACKEND_BACKEND_CONFORMANCE_H_
