"""Projects of HIP that `replay` builds, each as far as its sources need it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import NamedTuple


class Project(NamedTuple):
    """A project, by names in its checkout."""

    name: str
    copied: tuple[str, ...]
    """The folders that its sources need."""
    code: str
    """The folder whose commits are replayed."""
    source: str
    """The path of a source, with ``{}`` for its name."""
    sources: tuple[str, ...]
    """Names of sources, or paths with a suffix."""
    folders: tuple[str, ...]
    """Where headers are searched."""
    defined: tuple[str, ...]
    flags: tuple[str, ...]
    pch: str
    """`OFFLOAD_PCH` behind ``launch``."""
    written: Mapping[str, str] = MappingProxyType({})
    """Files that its own build would write, or that another project would bring."""
    within: str = ""
    """The folder of a larger repository that may hold it, with a slash."""

    def path(self, source: str) -> str:
        """Return the path of one of the `sources`."""
        return source if "." in source.rpartition("/")[2] else self.source.format(source)


_HIPBLAS = """\
#pragma once
#include <hip/hip_runtime.h>
#include <hip/hip_complex.h>
#include <hip/library_types.h>
typedef void *hipblasHandle_t;
enum hipblasStatus_t { HIPBLAS_STATUS_SUCCESS, HIPBLAS_STATUS_ALLOC_FAILED,
    HIPBLAS_STATUS_ARCH_MISMATCH, HIPBLAS_STATUS_EXECUTION_FAILED, HIPBLAS_STATUS_INTERNAL_ERROR,
    HIPBLAS_STATUS_INVALID_VALUE, HIPBLAS_STATUS_MAPPING_ERROR, HIPBLAS_STATUS_NOT_INITIALIZED,
    HIPBLAS_STATUS_NOT_SUPPORTED };
enum hipblasOperation_t { HIPBLAS_OP_N, HIPBLAS_OP_T };
enum hipblasDatatype_t { HIPBLAS_R_16F, HIPBLAS_R_32F, HIPBLAS_R_16B };
enum hipblasComputeType_t { HIPBLAS_COMPUTE_16F, HIPBLAS_COMPUTE_32F,
    HIPBLAS_COMPUTE_32F_FAST_16F };
enum hipblasGemmAlgo_t { HIPBLAS_GEMM_DEFAULT };
enum hipblasMath_t { HIPBLAS_DEFAULT_MATH };
extern "C" hipblasStatus_t hipblasCreate(hipblasHandle_t *), hipblasDestroy(hipblasHandle_t),
    hipblasSetStream(hipblasHandle_t, hipStream_t), hipblasSetMathMode(hipblasHandle_t, int);
#define ANY(NAME) template <class... T> hipblasStatus_t hipblas##NAME(T...);
ANY(Sgemm) ANY(SgemmBatched) ANY(SgemmStridedBatched) ANY(StrsmBatched)
ANY(GemmEx) ANY(GemmBatchedEx) ANY(GemmStridedBatchedEx)
#undef ANY
"""
LIGHT = ("clamp", "rope", "norm", "softmax", "getrows", "im2col", "unary", "sumrows", "pad")
"""Sources of ggml with short kernels."""
GGML = Project(
    name="ggml",
    copied=("include", "src"),
    code="src/ggml-cuda",
    source="src/ggml-cuda/{}.cu",
    sources=(*LIGHT, "mmvq", "fattn", "ggml-cuda", "cpy", "convert", "quantize", "ssm-scan"),
    folders=("include", "src", "src/ggml-cuda", "written"),
    defined=(
        *("GGML_USE_HIP", "GGML_HIP_NO_VMM", "__HIP_PLATFORM_AMD__", "__HIP_ROCclr__=1", "NDEBUG"),
    ),
    flags=("-O3", "-std=gnu++17", "-fPIC", "-w"),
    pch="common.cuh",
    written=MappingProxyType({"written/hipblas/hipblas.h": _HIPBLAS}),
    within="ggml/",
)
"""Its HIP backend, as in the project's own repository. Declarations replace hipBLAS."""
COMPOSABLE_KERNEL = Project(
    name="composable_kernel",
    copied=("include", "library/include", "example"),
    code="include",
    source="example/{}.cpp",
    sources=(
        *("12_reduce/reduce_blockwise_two_call", "13_pool2d_fwd/pool2d_fwd_fp16"),
        *("23_softmax/softmax_blockwise", "27_layernorm2d_fwd/layernorm2d_fwd_fp16"),
        *("39_permute/permute_1xHxW_fp16", "42_groupnorm_fwd/groupnorm_fwd_swish_fp16"),
        *("44_elementwise_permute/elementwise_binary_4D_fp16", "50_put_element/put_element_fp16"),
        *("52_im2col_col2im/image_to_column_f32", "ck_tile/03_gemm/gemm_basic"),
    ),
    folders=("include", "library/include", "written"),
    defined=("__HIP_PLATFORM_AMD__", "__HIP_ROCclr__=1", "CK_USE_XDL", "NDEBUG"),
    flags=("-O3", "-std=gnu++17", "-fPIC"),
    pch="ck.hpp",
    written=MappingProxyType({"written/ck/config.h": "#pragma once\n"}),
    within="projects/composablekernel/",
)
"""Examples with headers of many templates."""
_OTHER = Project("a project", (), "", "{}", (), (), ("__HIP_PLATFORM_AMD__",), ("-O3", "-w"), "")


def find_project(has_folder: Callable[[str], bool]) -> tuple[Project, str]:
    """Return the project of a repository with these folders, and its folder there with a slash.

    Of an unknown one, the user names sources and folders.
    """
    for each in (GGML, COMPOSABLE_KERNEL):
        for within in ("", each.within):
            if all(has_folder(within + folder) for folder in (each.code, *each.copied)):
                return each, within
    return _OTHER, ""
