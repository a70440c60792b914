// All kernels, one module.
#include "encode.cuh"
#include "knn.cuh"
#include "loads.cuh"
#include "dense.cuh"
#include "linear_attention.cuh"
#include "grf_attention.cuh"
#include "motion.cuh"
