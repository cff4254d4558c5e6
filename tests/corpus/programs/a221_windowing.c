#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdbool.h>
#include <math.h>
#define NPY_NO_DEPRECATED_API NPY_1_7_API_VERSION
#include <numpy/arrayobject.h>

static void scale_window(float *dst, const float *src, npy_intp width)
{
    double mean = 0.0, var = 0.0;
    for (npy_intp i = 0; i < width; i++)
        mean += src[i];
    mean /= (double)width;
    for (npy_intp i = 0; i < width; i++)
        var += (src[i] - mean) * (src[i] - mean);
    double inv = 1.0 / sqrt(var / (double)width + 1e-6);
    for (npy_intp i = 0; i < width; i++)
        dst[i] = (float)((src[i] - mean) * inv);
}

static PyObject *split(PyObject *self, PyObject *args)
{
    PyArrayObject *signal;
    int width, hop;
    if (!PyArg_ParseTuple(args, "O!ii", &PyArray_Type, &signal, &width, &hop))
        return NULL;
    npy_intp length = PyArray_DIM(signal, 0);
    npy_intp count = length < width ? 0 : (length - width) / hop + 1;
    npy_intp dims[2] = {count, width};
    PyObject *out = PyArray_SimpleNew(2, dims, NPY_FLOAT32);
    if (out == NULL)
        return NULL;
    const float *src = (const float *)PyArray_DATA(signal);
    float *dst = (float *)PyArray_DATA((PyArrayObject *)out);
    for (npy_intp w = 0; w < count; w++)
        for (npy_intp i = 0; i < width; i++)
            dst[w * width + i] = src[w * hop + i];
    return out;
}

static PyObject *standardize(PyObject *self, PyObject *args)
{
    PyArrayObject *windows;
    bool clip;
    if (!PyArg_ParseTuple(args, "O!p", &PyArray_Type, &windows, &clip))
        return NULL;
    npy_intp count = PyArray_DIM(windows, 0);
    npy_intp width = PyArray_DIM(windows, 1);
    npy_intp dims[2] = {count, width};
    PyObject *out = PyArray_SimpleNew(2, dims, NPY_FLOAT32);
    if (out == NULL)
        return NULL;
    const float *src = (const float *)PyArray_DATA(windows);
    float *dst = (float *)PyArray_DATA((PyArrayObject *)out);
    for (npy_intp w = 0; w < count; w++)
        scale_window(dst + w * width, src + w * width, width);
    if (clip)
        for (npy_intp i = 0; i < count * width; i++)
            dst[i] = fminf(3.0f, fmaxf(-3.0f, dst[i]));
    return out;
}

static PyMethodDef methods[] = {
    {"split", split, METH_VARARGS, "Cut a signal into overlapping windows."},
    {"standardize", standardize, METH_VARARGS, "Zero mean and unit variance per window."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "a221_windowing", NULL, -1, methods};

PyMODINIT_FUNC PyInit_a221_windowing(void)
{
    import_array();
    return PyModule_Create(&module);
}
